// Turns normalized characters into words, and their pieces into tokens, as SentencePiece does.
#pragma once

#include <cstdint>

#include "text/sentencepiece/encoder.h"
#include "text/text_view.h"
#include "text/unigram/lane.h"
#include "text/unigram/paths/word_path.h"

namespace encoder_engine {

struct sentencepiece_scratch : encoder_scratch {
    word_path_scratch words;
    unigram_lane_scratch lane;
    pod_vector<int32_t> marks;  // sources of the marks that wait for what follows
    pod_vector<int32_t> unknown_counts;  // of the last word's unknown tokens: their characters

    void choose_by(path_chooser* chooser) override { words.chooser = chooser; }
    int64_t num_bytes() const override { return words.num_bytes() + 4 * marks.capacity(); }
};

// Receives the normalized text, in which marks stand for spaces.
template <bool with_spans>
class sentencepiece_tokens {
public:
    // For unigram_lane.
    static constexpr bool kWithSpans = with_spans, kWordsReach = true, kSumsReach = true;

    sentencepiece_tokens(const sentencepiece_encoder& encoder, sentencepiece_scratch& scratch,
                         token_buffer& out, int64_t limit)
        : encoder_(encoder), options_(encoder.options()), scratch_(scratch), out_(out),
          limit_(limit), path_(encoder.model(), scratch.words, *this), sum_(encoder.scores()) {
        scratch.marks.clear();
        sum_.restart(out.ids);
    }

    bool full() const { return out_.size() >= limit_; }

    void letter(uint32_t code, int64_t source) {
        if (code != encoder_.mark()) {
            if (!scratch_.marks.empty()) put_marks();
            put_letter(code, source);
        } else if (options_.remove_extra_whitespaces) {
            // Marks at the end of the text are dropped.
            scratch_.marks.append(static_cast<int32_t>(source));
        } else {
            put_letter(code, source);
        }
    }
    // Ends the text, which has `length` characters.
    void finish(int64_t length) {
        int64_t end = length;
        if (!scratch_.marks.empty()) end = scratch_.marks[0];
        scratch_.marks.clear();
        if (options_.whitespace_as_suffix && options_.add_dummy_prefix && started_) {
            put_letter(encoder_.mark(), end);
        }
        path_.end(end);
    }
    // Starts a text that is not empty, and adds the dummy prefix.
    void start(int64_t source) {
        started_ = true;
        if (!options_.whitespace_as_suffix && options_.add_dummy_prefix) {
            letter(encoder_.mark(), source);
        }
    }

    // Returns whether a word begins here, as the lane defines it, and ends the word before. `space`
    // becomes the source of its mark. Of several marks in a row, all but the last are words.
    bool begins_word(int64_t& space) {
        if (scratch_.marks.size() != 1) return false;
        space = scratch_.marks[0];
        path_.end(space);
        return true;
    }
    // Notes that the lane has taken words, up to a place within the text.
    void words_taken() {
        scratch_.marks.clear();
        after_mark_ = false;
    }
    // For unigram_lane: the characters of a word, its end, and the state after a cached word.
    void word_letter(uint32_t code, int64_t source) { path_.letter(code, source); }
    void spell_word(int64_t next) { path_.end(next); }
    void known_word() {
        after_unknown_ = false;
        word_ += any_;
        any_ = true;
    }
    void next_word() {}
    bool after_unknown() const { return after_unknown_; }
    void add_span(int64_t start, int64_t stop) {
        out_.spans.append(static_cast<int32_t>(start));
        out_.spans.append(static_cast<int32_t>(stop));
        out_.words.append(word_);
    }
    // Begins the next text.
    void restart() {
        after_unknown_ = any_ = false;
        word_ = 0;
        sum_.restart(out_.ids);
    }
    // For unigram_lane, as in piece_sum: which cache serves the next words, up to which token,
    // whether the last word may be cached, and the number of characters of its unknown tokens.
    int choose_memory() { return sum_.choose_memory(out_.ids); }
    int64_t memory_end() const { return sum_.end(); }
    bool may_be_kept(int memory) const { return sum_.may_be_kept(memory); }
    const pod_vector<int32_t>& unknown_counts() const { return scratch_.unknown_counts; }
    void known_unknown(int32_t count) { sum_.add_unknown(count); }

    // For word_path.
    double sum_before() {
        scratch_.unknown_counts.clear();
        return sum_.now(out_.ids);
    }
    void word_done(int64_t place) {
        const path_search& search = scratch_.words.search;
        sum_.searched(out_.ids, place, search.margin(place), search.score_at(place));
    }
    void piece(int64_t start, int64_t stop, int32_t id) {
        const int32_t first = source(start), last = source(stop);
        if (with_spans) count_words(start, stop);
        const bool unknown = id == path_piece::kUnknown;
        if (!unknown) {
            put(id, first, last);
        } else if (!options_.byte_ids.empty()) {
            // The last byte's token spans the character; the other bytes' spans are empty and
            // precede it.
            uint8_t bytes[4];
            const int size = write_utf8(scratch_.words.word[start], bytes);
            for (int i = 0; i < size; ++i) {
                put(options_.byte_ids[bytes[i]], first, i + 1 == size ? last : first);
            }
        } else if (!after_unknown_) {
            put(options_.unknown_id, first, last);
            scratch_.unknown_counts.append(1);
        } else {
            if (with_spans) out_.spans[out_.spans.size() - 1] = last;
            if (!scratch_.unknown_counts.empty()) {
                ++scratch_.unknown_counts[scratch_.unknown_counts.size() - 1];
            }
        }
        after_unknown_ = unknown;
    }

private:
    void put_marks() {
        for (int64_t i = 0; i < scratch_.marks.size(); ++i) {
            put_letter(encoder_.mark(), scratch_.marks[i]);
        }
        scratch_.marks.clear();
    }
    void put_letter(uint32_t code, int64_t source) {
        const bool mark = code == encoder_.mark();
        const unigram_model& model = encoder_.model();
        if ((mark && model.cuts_before()) || (after_mark_ && model.cuts_behind())) {
            path_.end(source);
        }
        path_.letter(code, source);
        after_mark_ = mark;
    }
    // Counts words: one begins at every mark or, with marks as suffix, after every mark.
    void count_words(int64_t start, int64_t stop) {
        word_ += marks_behind_;
        marks_behind_ = 0;
        for (int64_t i = start; i < stop; ++i) {
            if (scratch_.words.word[i] != encoder_.mark()) continue;
            if (i == start && !options_.whitespace_as_suffix) {
                word_ += any_;
            } else {
                ++marks_behind_;
            }
        }
        any_ = true;
    }
    int32_t source(int64_t place) const {
        return with_spans ? scratch_.words.sources[place] : 0;
    }
    void put(int32_t id, int32_t start, int32_t stop) {
        out_.ids.append(id);
        if (!with_spans) return;
        out_.spans.append(start);
        out_.spans.append(stop);
        out_.words.append(word_);
    }

    const sentencepiece_encoder& encoder_;
    const sentencepiece_options& options_;
    sentencepiece_scratch& scratch_;
    token_buffer& out_;
    int64_t limit_;
    word_path<with_spans, sentencepiece_tokens> path_;
    piece_sum sum_;
    bool started_ = false, after_mark_ = false, after_unknown_ = false;
    bool any_ = false;          // a piece has been written
    int32_t word_ = 0;
    int32_t marks_behind_ = 0;  // marks inside the last piece
};

}  // namespace encoder_engine
