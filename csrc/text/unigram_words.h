// Normalized characters on their way into words, and words on their way into tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/added_tokens.h"
#include "text/sequence_encoder.h"
#include "text/text_view.h"
#include "text/unigram_model.h"

namespace encoder_engine {

enum class prepend_scheme : uint8_t { always, first, never };

// How normalized text is cut into words, each of which is matched by itself.
struct unigram_splitting {
    bool white_space = false;  // at white space, which goes
    bool metaspace = false;    // spaces become `mark`, and one is set in front
    uint32_t mark = 0x2581;
    prepend_scheme scheme = prepend_scheme::always;
    bool split = true;         // a word begins at every mark
};

struct unigram_ids {
    int32_t unknown = 0;
    std::vector<int32_t> bytes;  // by byte, -1 for those without a piece; empty: no byte fallback
};

// Buffers of one thread for the word under way.
struct unigram_word_scratch {
    pod_vector<uint8_t> word;      // UTF-8
    pod_vector<int32_t> sources;   // with spans: per byte of it, the character it came from
    pod_vector<uint8_t> unknown;   // bytes of unknown pieces in a row, as far as they matter
    pod_vector<path_piece> pieces;
    path_search search;

    int64_t num_bytes() const {
        return word.capacity() + unknown.capacity() + 4 * sources.capacity() +
               static_cast<int64_t>(sizeof(path_piece)) * pieces.capacity() + search.num_bytes();
    }
};

// Turns words into tokens, the long ones a part at a time.
template <bool with_spans>
class unigram_tokens {
public:
    unigram_tokens(const unigram_model& model, const unigram_ids& ids,
                   unigram_word_scratch& scratch, token_buffer& out, int64_t limit)
        : model_(model), ids_(ids), scratch_(scratch), out_(out), limit_(limit) {
        clear();
    }

    bool full() const { return out_.size() >= limit_; }
    bool between_words() const { return !open_; }

    void letter(uint32_t code, int64_t source) {
        open_ = true;
        scratch_.word.reserve_more(4);
        const int size = write_utf8(code, scratch_.word.end());
        scratch_.word.extend(size);
        if (with_spans) {
            scratch_.sources.reserve_more(4);
            for (int i = 0; i < size; ++i) scratch_.sources.push(static_cast<int32_t>(source));
        }
        if (scratch_.word.size() >= part_at_) take_part();
    }
    void end_word() {
        if (!open_) return;
        if (!searching_) scratch_.search.start();
        const int64_t size = scratch_.word.size();
        scratch_.search.advance(model_, scratch_.word.data(), size, true);
        emit(size);
        close_unknown();
        ++num_words_;
        clear();
    }
    // One token that is a word of its own.
    void token(int32_t id, int64_t start, int64_t stop) {
        put(id, static_cast<int32_t>(start), static_cast<int32_t>(stop));
        ++num_words_;
    }

private:
    static constexpr int64_t kPart = 4096;
    // Two paths that are as good as each other over so many bytes are no longer both kept.
    static constexpr int64_t kMaxOpen = 1 << 20;

    // Writes the tokens on which later bytes have no influence, and forgets their bytes.
    void take_part() {
        path_search& search = scratch_.search;
        if (!searching_) search.start();
        searching_ = true;
        const int64_t size = scratch_.word.size();
        search.advance(model_, scratch_.word.data(), size, false);
        int64_t settled = search.find_settled();
        if (settled == 0 && size >= kMaxOpen) settled = search.best_end();
        if (settled > 0) {
            emit(settled);
            search.forget(settled);
            scratch_.word.drop_front(settled);
            if (with_spans) scratch_.sources.drop_front(settled);
        }
        // Where nothing settles, the next look is the more worth the longer it waits.
        part_at_ = scratch_.word.size() + std::max(kPart, scratch_.word.size() / 2);
    }
    // Writes the tokens of the best path to `stop`.
    void emit(int64_t stop) {
        pod_vector<path_piece>& pieces = scratch_.pieces;
        pieces.clear();
        scratch_.search.trace(model_, stop, pieces);
        int64_t start = 0;
        for (int64_t i = 0; i < pieces.size(); ++i) {
            const path_piece piece = pieces[i];
            if (piece.id == path_piece::kUnknown || piece.id == ids_.unknown) {
                add_unknown(start, piece.stop);
            } else {
                close_unknown();
                put(piece.id, source(start), source(piece.stop - 1) + 1);
            }
            start = piece.stop;
        }
    }
    // Unknown pieces in a row become one, which may happen to be known.
    void add_unknown(int64_t start, int64_t stop) {
        pod_vector<uint8_t>& bytes = scratch_.unknown;
        if (bytes.empty()) unknown_start_ = source(start);
        unknown_stop_ = source(stop - 1) + 1;
        const int64_t most = ids_.bytes.empty() ? model_.max_size() : kMaxOpen;
        if (bytes.size() <= most) {
            bytes.append(scratch_.word.data() + start, stop - start);
        } else if (!ids_.bytes.empty()) {
            close_unknown();
            add_unknown(start, stop);
        }
    }
    void close_unknown() {
        pod_vector<uint8_t>& bytes = scratch_.unknown;
        if (bytes.empty()) return;
        const int32_t known = model_.find(bytes.data(), bytes.size());
        if (known != path_piece::kUnknown) {
            put(known, unknown_start_, unknown_stop_);
        } else if (!has_bytes(bytes)) {
            put(ids_.unknown, unknown_start_, unknown_stop_);
        } else {
            for (int64_t i = 0; i < bytes.size(); ++i) {
                put(ids_.bytes[bytes[i]], unknown_start_, unknown_stop_);
            }
        }
        bytes.clear();
    }
    bool has_bytes(const pod_vector<uint8_t>& bytes) const {
        if (ids_.bytes.empty()) return false;
        return std::all_of(bytes.data(), bytes.data() + bytes.size(),
                           [this](uint8_t byte) { return ids_.bytes[byte] >= 0; });
    }
    int32_t source(int64_t byte) const { return with_spans ? scratch_.sources[byte] : 0; }
    void put(int32_t id, int32_t start, int32_t stop) {
        out_.ids.append(id);
        if (!with_spans) return;
        out_.spans.append(start);
        out_.spans.append(stop);
        out_.words.append(num_words_);
    }
    void clear() {
        open_ = searching_ = false;
        part_at_ = kPart;
        scratch_.word.clear();
        scratch_.sources.clear();
        scratch_.unknown.clear();
    }

    const unigram_model& model_;
    const unigram_ids& ids_;
    unigram_word_scratch& scratch_;
    token_buffer& out_;
    int64_t limit_;
    int64_t part_at_ = kPart;  // bytes of the word at which a part of it is taken
    bool open_ = false, searching_ = false;
    int32_t unknown_start_ = 0, unknown_stop_ = 0;
    int32_t num_words_ = 0;
};

// Cuts normalized text into words.
template <bool with_spans>
class unigram_words {
public:
    unigram_words(const unigram_splitting& splitting, unigram_tokens<with_spans>& tokens)
        : splitting_(splitting), tokens_(tokens) {}

    bool full() const { return tokens_.full(); }
    void letter(uint32_t code, int64_t source) {
        if (splitting_.white_space && is_strip_space(code)) return end_text();
        if (splitting_.metaspace) {
            if (code == ' ') code = splitting_.mark;
            if (!inside_) {
                if (code != splitting_.mark && prepends(source)) {
                    tokens_.letter(splitting_.mark, source);
                }
            } else if (code == splitting_.mark && splitting_.split) {
                tokens_.end_word();
            }
        }
        inside_ = true;
        tokens_.letter(code, source);
    }
    // Ends what spaces are set in front of: text between added tokens, or between white space.
    void end_text() {
        tokens_.end_word();
        inside_ = false;
    }
    void added(int32_t id, int64_t start, int64_t stop) {
        end_text();
        tokens_.token(id, start, stop);
    }

private:
    bool prepends(int64_t source) const {
        return splitting_.scheme == prepend_scheme::always ||
               (splitting_.scheme == prepend_scheme::first && source == 0);
    }

    const unigram_splitting& splitting_;
    unigram_tokens<with_spans>& tokens_;
    bool inside_ = false;
};

}  // namespace encoder_engine
