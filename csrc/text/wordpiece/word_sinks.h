// Sinks of scanned characters: words cut to pieces at once, or normalized text first.
//
// How it works: a sink gets words by chunks from the lane (emit) or characters from the scanner
// (letter, space, isolated, added). A word of a chunk is looked up in a cache by its key, and only a
// word that misses is matched against the vocabulary and kept. Text outside ASCII has a cache with
// more room for long words and many pieces, made at the first such text. Characters are collected as
// UTF-8 with, where spans are kept, the source character of every byte, from which the spans of
// pieces follow. A word above the model's limit of characters is only counted, and becomes the
// unknown token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>

#include "text/added_tokens.h"
#include "text/unicode/char_table.h"
#include "text/sequence_encoder.h"
#include "text/words/word_cache.h"
#include "text/words/word_chunk.h"
#include "text/wordpiece/wordpiece.h"

namespace encoder_engine {

using wordpiece_memory = word_memory<15, 9, 11, 9, 7>;
// Outside ASCII there are more distinct words, and they have more pieces.
using wide_wordpiece_memory = word_memory<15, 13, 13, 11, 9>;

struct wordpiece_scratch : encoder_scratch {
    word_chunk chunk;
    wordpiece_memory memory;
    std::unique_ptr<wide_wordpiece_memory> wide_memory;  // from the first text that is not ASCII
    pod_vector<uint8_t> word;     // the current word, normalized, in UTF-8
    pod_vector<int32_t> sources;  // with spans: per byte of it, the character it came from
    pod_vector<uint32_t> codes;   // normalized text of one segment ...
    pod_vector<int32_t> origins;  // ... per character, the one it came from
    pod_vector<uint8_t> kinds;    // ... and its char_kind

    int64_t num_bytes() const override {
        return word.capacity() + kinds.capacity() +
               4 * (sources.capacity() + codes.capacity() + origins.capacity());
    }
};

// Collects letters into words; each finished word becomes pieces in the output.
template <bool with_spans>
class word_sink {
public:
    word_sink(const wordpiece_model& model, wordpiece_scratch& scratch, token_buffer& out,
              int64_t limit)
        : model_(model), scratch_(scratch), out_(out), limit_(limit),
          max_characters_(model.max_word_characters()) {
        clear_word();
    }

    bool full() const { return out_.size() >= limit_; }
    bool between_words() const { return num_characters_ == 0; }
    bool too_long() const { return num_characters_ > max_characters_; }

    void letter(uint32_t code, int64_t source) {
        if (with_spans) {
            if (num_characters_ == 0) first_ = source;
            last_ = source;
        }
        // The letters of a word that is too long are not kept.
        if (++num_characters_ > max_characters_) return;
        scratch_.word.reserve_more(4);
        const int size = write_utf8(code, scratch_.word.end());
        scratch_.word.extend(size);
        if (with_spans) {
            scratch_.sources.reserve_more(4);
            for (int i = 0; i < size; ++i) scratch_.sources.push(static_cast<int32_t>(source));
        }
    }
    // Extends the span of a word that is already too long.
    void lengthen(int64_t source) { last_ = source; }
    void space(uint32_t, int64_t) { end_word(); }
    void isolated(uint32_t id, int64_t source) {
        end_word();
        token(static_cast<int32_t>(id), source, source + 1);
    }
    void cjk(uint32_t id, int64_t source) { isolated(id, source); }
    void added(const added_match& match) {
        end_word();
        token(match.token->id, match.start, match.stop);
        out_.note_blanks(match.blanks);
    }
    void item(const normal_char& c, int64_t source) {
        if (c.kind == char_kind::isolated) {
            isolated(c.payload, source);
        } else if (c.kind == char_kind::space) {
            end_word();
        } else {
            letter(c.code, source);
        }
    }
    // The payload that isolated() takes, for a character that is not in the table.
    uint32_t payload(uint32_t code) const {
        return static_cast<uint32_t>(model_.match_character(code));
    }
    void end_word() {
        if (num_characters_ == 0) return;
        if (num_characters_ > max_characters_) {
            token(model_.unknown_id(), first_, last_ + 1);
        } else {
            const int64_t size = scratch_.word.size();
            const int64_t first = out_.size();
            model_.match(scratch_.word.data(), size, out_.ids);
            if (with_spans) {
                const int32_t* sources = scratch_.sources.data();
                const auto span_of = [sources](int64_t from, int64_t to) {
                    return token_span{sources[from], sources[to - 1] + 1};
                };
                spans(first, size, span_of, [this](int32_t id, bool is_first) {
                    return model_.piece_size(id, is_first);
                });
            }
            ++num_words_;
        }
        clear_word();
    }
    void finish() { end_word(); }

    // Appends a token that is a word of its own.
    void token(int32_t id, int64_t start, int64_t stop) {
        out_.ids.append(id);
        if (with_spans) {
            out_.spans.append(static_cast<int32_t>(start));
            out_.spans.append(static_cast<int32_t>(stop));
            out_.words.append(num_words_);
        }
        ++num_words_;
    }

    // Takes the words of a chunk that begins at character `base` of the text.
    template <typename Unit>
    void emit(const word_chunk& chunk, int64_t base) {
        emit<Unit>(chunk, 0, chunk.num_words, base);
    }
    // Takes words [begin, end); the chunk's first unit is character `base`.
    template <typename Unit>
    void emit(const word_chunk& chunk, int begin, int end, int64_t base) {
        const int64_t room = limit_ - out_.size();
        if (end - begin > room) end = begin + static_cast<int>(room);
        for (int i = begin; i < end; ++i) {
            i = emit_known<Unit>(chunk, i, end, base);
            if (i == end) break;
            const int64_t first = out_.size();
            look_up<Unit>(chunk, i);
            if (with_spans) chunk_spans<Unit>(chunk, i, first, static_cast<int32_t>(base));
            ++num_words_;
        }
    }
    // Begins the next text, between words.
    void restart(int64_t limit) {
        limit_ = limit;
        num_words_ = 0;
    }

private:
    struct token_span {
        int32_t start, stop;
    };

    // Takes words from `index` on that are in the cache of short words; returns the first that is
    // not.
    template <typename Unit>
    int emit_known(const word_chunk& chunk, int index, int num_words, int64_t base) {
        const auto& cache = memory_of(Unit{}).short_words;
        // A lookup writes kMaxPieces values, whatever the number of pieces.
        out_.ids.reserve_more(int64_t{cache.kMaxPieces} * (num_words - index));
        int32_t* const begin = out_.ids.end();
        int32_t* to = begin;
        int i = index;
        for (; i < num_words; ++i) {
            // After the last word, keys of an earlier chunk are prefetched, which does no harm.
            __builtin_prefetch(cache.place(chunk.keys[i + word_chunk::kAhead]));
            if (chunk.sizes[i] * sizeof(Unit) > word_key::kMaxSize) break;
            const int count = cache.find(chunk.keys[i], to);
            if (count == 0) break;
            to += count;
            if (with_spans) {
                out_.ids.extend(count);
                chunk_spans<Unit>(chunk, i, out_.size() - count, static_cast<int32_t>(base));
                ++num_words_;
            }
        }
        if (!with_spans) {
            out_.ids.extend(to - begin);
            num_words_ += i - index;
        }
        return i;
    }

    // Appends the pieces of a word that the cache of short words does not have.
    template <typename Unit>
    void look_up(const word_chunk& chunk, int index) {
        auto& memory = memory_of(Unit{});
        const int size = chunk.sizes[index];
        const int num_bytes = size * static_cast<int>(sizeof(Unit));
        const Unit* word = units_of(chunk, Unit{}) + chunk.starts[index];
        const auto* bytes = reinterpret_cast<const uint8_t*>(word);
        out_.ids.reserve_more(memory.kMaxPieces);
        const int known = memory.find(chunk.keys[index], bytes, num_bytes, out_.ids.end());
        out_.ids.extend(known);
        if (known > 0) return;
        const int64_t first = out_.size();
        match(word, size);
        memory.keep(chunk.keys[index], bytes, num_bytes, out_.ids.data() + first,
                    out_.size() - first);
    }

    wordpiece_memory& memory_of(uint8_t) { return scratch_.memory; }
    wide_wordpiece_memory& memory_of(uint16_t) {
        if (scratch_.wide_memory == nullptr) {
            scratch_.wide_memory = std::make_unique<wide_wordpiece_memory>();
        }
        return *scratch_.wide_memory;
    }
    static const uint8_t* units_of(const word_chunk& chunk, uint8_t) { return chunk.bytes; }
    static const uint16_t* units_of(const word_chunk& chunk, uint16_t) { return chunk.units; }

    void match(const uint8_t* word, int64_t size) {
        if (size > max_characters_) {
            out_.ids.append(model_.unknown_id());
        } else {
            model_.match(word, size, out_.ids);
        }
    }
    void match(const uint16_t* word, int64_t size) {
        pod_vector<uint8_t>& bytes = scratch_.word;
        bytes.clear();
        bytes.reserve_more(3 * size);
        int64_t num_characters = 0;
        for (int64_t i = 0; i < size; ++i, ++num_characters) {
            uint32_t code = word[i];
            if (code >= 0xD800 && code < 0xDC00) {
                code = 0x10000 + ((code & 0x3FF) << 10 | (word[++i] & 0x3FF));
            }
            bytes.extend(write_utf8(code, bytes.end()));
        }
        if (num_characters > max_characters_) {
            out_.ids.append(model_.unknown_id());
        } else {
            model_.match(bytes.data(), bytes.size(), out_.ids);
        }
        bytes.clear();
    }

    template <typename Unit>
    void chunk_spans(const word_chunk& chunk, int index, int64_t first, int32_t base) {
        const int64_t size = chunk.sizes[index];
        if (sizeof(Unit) == 1) {
            const int32_t start = base + chunk.starts[index];
            const auto span_of = [start](int64_t from, int64_t to) {
                return token_span{start + static_cast<int32_t>(from),
                                  start + static_cast<int32_t>(to)};
            };
            spans(first, size, span_of, [this](int32_t id, bool is_first) {
                return model_.piece_size(id, is_first);
            });
        } else {
            const uint16_t* sources = chunk.sources + chunk.starts[index];
            const auto span_of = [sources, base](int64_t from, int64_t to) {
                return token_span{base + sources[from], base + sources[to - 1] + 1};
            };
            spans(first, size, span_of, [this](int32_t id, bool is_first) {
                return model_.piece_units(id, is_first);
            });
        }
    }

    // Appends the spans of the word's pieces from `first` on, by the pieces' sizes. The last piece,
    // which may be the unknown token, reaches to the end.
    template <typename Span, typename Size>
    void spans(int64_t first, int64_t size, const Span& span_of, const Size& size_of) {
        out_.spans.reserve_more(2 * (out_.size() - first));
        out_.words.reserve_more(out_.size() - first);
        int64_t from = 0;
        for (int64_t i = first; i < out_.size(); ++i) {
            const bool last = i + 1 == out_.size();
            int64_t to = size;
            if (!last) {
                to = std::min(std::max(from + size_of(out_.ids[i], i == first), from + 1), size);
            }
            const token_span span = span_of(from, to);
            out_.spans.push(span.start);
            out_.spans.push(span.stop);
            out_.words.push(num_words_);
            from = std::min(to, size - 1);
        }
    }
    void clear_word() {
        num_characters_ = 0;
        scratch_.word.clear();
        scratch_.sources.clear();
    }

    const wordpiece_model& model_;
    wordpiece_scratch& scratch_;
    token_buffer& out_;
    int64_t limit_;
    int64_t max_characters_;
    int64_t num_characters_ = 0;
    int64_t first_ = 0, last_ = 0;  // with spans: source characters of the current word
    int32_t num_words_ = 0;
};

// Collects the normalized text of each segment, finds added tokens in it, and passes on the rest.
template <bool with_spans>
class text_sink {
public:
    text_sink(word_sink<with_spans>& words, const added_token_set& added,
              wordpiece_scratch& scratch)
        : words_(words), added_(added), scratch_(scratch), finder_(added, nullptr, 0) {
        clear();
    }

    bool full() const { return words_.full(); }
    void letter(uint32_t code, int64_t source) { put(code, source, char_kind::identity); }
    void space(uint32_t code, int64_t source) { put(code, source, char_kind::space); }
    void isolated(uint32_t code, int64_t source) { put(code, source, char_kind::isolated); }
    void cjk(uint32_t code, int64_t source) {
        put(' ', source, char_kind::space);
        put(code, source, char_kind::identity);
        put(' ', source, char_kind::space);
    }
    void item(const normal_char& c, int64_t source) { put(c.code, source, c.kind); }
    uint32_t payload(uint32_t code) const { return code; }
    // White space inside the match belongs to neither of the segments around it.
    void added(const added_match& match) {
        int64_t size = scratch_.codes.size();
        while (size > done_ && scratch_.origins[size - 1] >= match.start) --size;
        scratch_.codes.truncate(size);
        finish();
        words_.added(match);
        segment_start_ = match.stop;
    }
    void finish() {
        search(std::numeric_limits<int64_t>::max());
        words_.finish();
        clear();
    }

private:
    static constexpr int64_t kPieceSize = 4096;

    void put(uint32_t code, int64_t source, char_kind kind) {
        if (source < segment_start_) return;
        scratch_.codes.append(code);
        scratch_.origins.append(static_cast<int32_t>(source));
        scratch_.kinds.append(static_cast<uint8_t>(kind));
        if (scratch_.codes.size() >= search_at_) search_piece();
    }
    // Searches the part of the segment that no later character can change, and drops it. White
    // space at the end stays: an added token of the raw text may take it in.
    void search_piece() {
        const uint32_t* codes = scratch_.codes.data();
        int64_t certain = scratch_.codes.size();
        while (certain > done_ && is_strip_space(codes[certain - 1])) --certain;
        search(certain);
        // Keep what lstrip and single_word look back at.
        int64_t dropped = done_;
        while (dropped > finder_.segment_start() && is_strip_space(codes[dropped - 1])) --dropped;
        dropped = std::max<int64_t>(dropped - 1, 0);
        scratch_.codes.drop_front(dropped);
        scratch_.origins.drop_front(dropped);
        scratch_.kinds.drop_front(dropped);
        finder_.move(scratch_.codes.data(), scratch_.codes.size(), dropped);
        done_ -= dropped;
        search_at_ = 2 * scratch_.codes.size() + kPieceSize;
    }
    // Searches from done_ on, for matches that do not depend on characters from `certain` on.
    void search(int64_t certain) {
        const uint32_t* codes = scratch_.codes.data();
        const int64_t length = scratch_.codes.size();
        const bool whole = certain > length;
        finder_.move(codes, length, 0);
        // single_word looks at the character behind a match.
        const int64_t end = whole ? length : certain - added_.max_size();
        added_match match;
        while (done_ < end && !words_.full()) {
            if (!finder_.find(done_, match)) {
                pass(codes[done_], scratch_.origins[done_],
                     static_cast<char_kind>(scratch_.kinds[done_]));
                ++done_;
                continue;
            }
            if (!whole && match.stop >= certain) return;  // rstrip may reach further
            finder_.accept(match);
            done_ = match.end;
            match.start = scratch_.origins[match.start];
            match.stop = scratch_.origins[match.stop - 1] + 1;
            words_.added(match);
        }
    }
    void pass(uint32_t code, int64_t source, char_kind kind) {
        if (kind == char_kind::space) {
            words_.end_word();
        } else if (kind == char_kind::isolated) {
            words_.isolated(words_.payload(code), source);
        } else {
            words_.letter(code, source);
        }
    }
    void clear() {
        scratch_.codes.clear();
        scratch_.origins.clear();
        scratch_.kinds.clear();
        finder_.move(nullptr, 0, std::numeric_limits<int64_t>::max());
        done_ = 0;
        search_at_ = kPieceSize;
    }

    word_sink<with_spans>& words_;
    const added_token_set& added_;
    wordpiece_scratch& scratch_;
    added_token_finder<uint32_t> finder_;
    int64_t segment_start_ = 0;  // in the source: where the segment under way begins
    int64_t done_ = 0;           // characters of the segment already searched
    int64_t search_at_ = kPieceSize;
};

}  // namespace encoder_engine
