// Cuts normalized characters into words, and turns words into tokens.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/added_tokens.h"
#include "text/sequence_encoder.h"
#include "text/text_view.h"
#include "text/unigram/model.h"
#include "text/unigram/paths/word_path.h"

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

// Turns the pieces of words into tokens.
template <bool with_spans>
class unigram_tokens {
public:
    // For unigram_lane.
    static constexpr bool kWithSpans = with_spans, kWordsReach = false, kSumsReach = false;

    unigram_tokens(const unigram_model& model, const unigram_ids& ids, word_path_scratch& scratch,
                   token_buffer& out, int64_t limit)
        : model_(model), ids_(ids), scratch_(scratch), out_(out), limit_(limit),
          path_(model, scratch, *this) {
        scratch.unknown.clear();
    }

    bool full() const { return out_.size() >= limit_; }
    void letter(uint32_t code, int64_t source) { path_.letter(code, source); }
    void end_word() {
        if (!path_.open()) return;
        spell_word(0);
        next_word();
    }
    // For unigram_lane: the parts of end_word(), because a cached word needs no search ...
    void word_letter(uint32_t code, int64_t source) { path_.letter(code, source); }
    void spell_word(int64_t /*next*/) {
        path_.end(0);
        close_unknown();
    }
    void next_word() { ++num_words_; }
    // ... and the state after a cached word.
    void known_word() {}
    // Whether an unknown token before would absorb one that begins the next word.
    bool after_unknown() const { return false; }
    // Begins the next text.
    void restart() { num_words_ = 0; }
    // Appends the span of a token whose id was appended already.
    void add_span(int64_t start, int64_t stop) {
        out_.spans.append(static_cast<int32_t>(start));
        out_.spans.append(static_cast<int32_t>(stop));
        out_.words.append(num_words_);
    }
    // Appends a token that is a word of its own.
    void token(int32_t id, int64_t start, int64_t stop, blank_ends blanks) {
        put(id, static_cast<int32_t>(start), static_cast<int32_t>(stop));
        out_.note_blanks(blanks);
        ++num_words_;
    }
    // For word_path.
    double sum_before() const { return 0.0; }
    void word_done(int64_t) {}
    void piece(int64_t start, int64_t stop, int32_t id) {
        if (id == path_piece::kUnknown || id == ids_.unknown) {
            add_unknown(start, stop);
        } else {
            close_unknown();
            put(id, source(start), source(stop - 1) + 1);
        }
    }

private:
    // Longer runs of unknown characters are split, if they are written as bytes.
    static constexpr int64_t kMaxUnknown = 1 << 19;

    // Joins consecutive unknown pieces into one text, which may be a piece after all.
    void add_unknown(int64_t start, int64_t stop) {
        pod_vector<uint32_t>& unknown = scratch_.unknown;
        const int64_t most = ids_.bytes.empty() ? model_.max_size() : kMaxUnknown;
        if (unknown.size() > most && !ids_.bytes.empty()) close_unknown();
        if (unknown.empty()) unknown_start_ = source(start);
        unknown_stop_ = source(stop - 1) + 1;
        if (out_.with_blanks) count_blanks(start, stop, unknown.empty());
        if (unknown.size() <= most) unknown.append(scratch_.word.data() + start, stop - start);
    }
    void close_unknown() {
        pod_vector<uint32_t>& unknown = scratch_.unknown;
        if (unknown.empty()) return;
        const int32_t known = model_.find(unknown.data(), unknown.size());
        if (known != path_piece::kUnknown) {
            put(known, unknown_start_, unknown_stop_);
        } else if (!put_bytes()) {
            put(ids_.unknown, unknown_start_, unknown_stop_);
            out_.note_blanks(unknown_blanks_);
        }
        unknown.clear();
    }
    // Updates the counts of white space at both ends of the unknown text.
    void count_blanks(int64_t start, int64_t stop, bool first) {
        if (first) {
            unknown_blanks_ = {};
            only_blanks_ = true;
        }
        for (int64_t i = start; i < stop; ++i) {
            const bool blank = is_blank(scratch_.word[i]);
            only_blanks_ &= blank;
            unknown_blanks_.leading += only_blanks_;
            unknown_blanks_.trailing = blank ? unknown_blanks_.trailing + 1 : 0;
        }
    }
    // Writes the pieces of the unknown characters' bytes, if all of them have one.
    bool put_bytes() {
        if (ids_.bytes.empty()) return false;
        const int64_t first = out_.size();
        for (int64_t i = 0; i < scratch_.unknown.size(); ++i) {
            uint8_t bytes[4];
            const int size = write_utf8(scratch_.unknown[i], bytes);
            for (int j = 0; j < size; ++j) {
                const int32_t id = ids_.bytes[bytes[j]];
                if (id < 0) {
                    out_.truncate(first);
                    return false;
                }
                put(id, unknown_start_, unknown_stop_);
            }
        }
        return true;
    }
    int32_t source(int64_t place) const { return with_spans ? scratch_.sources[place] : 0; }
    void put(int32_t id, int32_t start, int32_t stop) {
        out_.ids.append(id);
        if (!with_spans) return;
        out_.spans.append(start);
        out_.spans.append(stop);
        out_.words.append(num_words_);
    }

    const unigram_model& model_;
    const unigram_ids& ids_;
    word_path_scratch& scratch_;
    token_buffer& out_;
    int64_t limit_;
    word_path<with_spans, unigram_tokens> path_;
    int32_t unknown_start_ = 0, unknown_stop_ = 0;
    blank_ends unknown_blanks_;  // counted where spans are trimmed
    bool only_blanks_ = false;
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
    // Ends a text that gets a mark in front: text between added tokens, or between white space.
    void end_text() {
        tokens_.end_word();
        inside_ = false;
    }
    void added(int32_t id, int64_t start, int64_t stop, blank_ends blanks) {
        end_text();
        tokens_.token(id, start, stop, blanks);
    }
    // Whether the next letter begins a text.
    bool between_texts() const { return !inside_; }
    // Called before the lane takes whole words, past this object ...
    void close_word() { tokens_.end_word(); }
    // ... and after.
    void words_taken() { inside_ = true; }

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
