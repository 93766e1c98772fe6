// The steps between normalization and words: folds spaces, and finds the added tokens that are
// matched in normalized text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "text/added_tokens.h"
#include "text/normalizer/normalizer.h"

namespace encoder_engine {

// The last normalizer, if it replaces runs of spaces: it is then applied on the way.
struct space_folding {
    bool active = false;
    int64_t least = 2;              // spaces of a run
    std::vector<uint32_t> content;  // what it becomes
};

// Finds added tokens in normalized text, and passes on the text between them.
// `Words` receives letter(code, source), end_text() and added().
template <typename Words>
class normalized_text {
public:
    normalized_text(const space_folding& folding, const added_token_set& added, sourced_text& buffer,
                    pod_vector<uint32_t>& codes, Words& words)
        : folding_(folding), added_(added), buffer_(buffer), codes_(codes), words_(words),
          finder_(added, nullptr, 0) {
        clear();
    }

    bool full() const { return words_.full(); }
    void letter(uint32_t code, int64_t source) {
        if (folding_.active) {
            if (code == ' ') {
                ++num_spaces_;
                space_source_ = source;
                return;
            }
            if (num_spaces_ > 0) unfold();
        }
        put(code, source);
    }
    // Returns whether a word with a mark in front begins here: after a space, or where a text
    // begins. `space` becomes the source of that space. Ends the word before.
    bool begins_word(int64_t& space) {
        space = num_spaces_ > 0 ? space_source_ : -1;
        if (num_spaces_ == 0 && !words_.between_texts()) return false;
        words_.close_word();
        return true;
    }
    // Notes that the lane has taken words, up to a place within the text.
    void words_taken() {
        num_spaces_ = 0;
        words_.words_taken();
    }
    // Passes on what no later character can change; returns whether that is all so far. Then
    // characters that begin no added token may go to the words directly: see skip().
    bool settle() {
        const int64_t length = codes_.size();
        if (passed_ == length) return num_spaces_ == 0;
        finder_.move(codes_.data(), length, 0);
        added_match match;
        while (done_ < length && !full()) {
            if (added_.may_go_on(codes_.data(), done_, length)) break;
            if (!finder_.find(done_, match)) {
                ++done_;
                continue;
            }
            const bool looks_on = match.token->single_word || match.token->rstrip;
            if (looks_on && match.stop == length) break;
            take(match);
        }
        pass_certain();
        if (passed_ < length) return false;
        skip(codes_[length - 1], buffer_[length - 1].source);
        return num_spaces_ == 0;
    }
    // Notes that characters up to this one went to the words directly.
    void skip(uint32_t code, int64_t source) {
        if (added_.empty()) return;
        clear();
        // An added token may look at the character before it.
        buffer_.append({code, static_cast<int32_t>(source)});
        codes_.append(code);
        finder_.begin_at(1);
        done_ = passed_ = 1;
    }
    void end_segment() {
        if (num_spaces_ > 0) unfold();
        if (!added_.empty()) {
            search(std::numeric_limits<int64_t>::max());
            clear();
        }
        words_.end_text();
    }
    // A token matched in the text as it stands, between two segments.
    void added(const added_match& match) {
        words_.added(match.token->id, match.start, match.stop, match.blanks);
    }

private:
    static constexpr int64_t kPieceSize = 4096;

    void unfold() {
        if (num_spaces_ < folding_.least) {
            // A run of fewer than two spaces is one space, whose source is known.
            put(' ', space_source_);
        } else {
            for (const uint32_t code : folding_.content) put(code, space_source_);
        }
        num_spaces_ = 0;
    }
    void put(uint32_t code, int64_t source) {
        if (added_.empty()) return words_.letter(code, source);
        buffer_.append({code, static_cast<int32_t>(source)});
        codes_.append(code);
        if (codes_.size() >= search_at_) search_piece();
    }
    // Searches the part of the buffer that no later character can change, and drops it.
    void search_piece() {
        int64_t certain = codes_.size();
        while (certain > done_ && is_strip_space(codes_[certain - 1])) --certain;
        search(certain);
        // Keep what lstrip and single_word look back at.
        int64_t dropped = done_;
        while (dropped > finder_.segment_start() && is_strip_space(codes_[dropped - 1])) --dropped;
        dropped = std::max<int64_t>(dropped - 1, 0);
        buffer_.drop_front(dropped);
        codes_.drop_front(dropped);
        finder_.move(codes_.data(), codes_.size(), dropped);
        done_ -= dropped;
        passed_ -= dropped;
        search_at_ = 2 * codes_.size() + kPieceSize;
    }
    // Searches from done_ on, for matches that do not depend on characters from `certain` on.
    void search(int64_t certain) {
        const int64_t length = codes_.size();
        const bool whole = certain > length;
        finder_.move(codes_.data(), length, 0);
        // single_word looks at the character behind a match.
        const int64_t end = whole ? length : certain - added_.max_size();
        added_match match;
        while (done_ < end && !full()) {
            if (!finder_.find(done_, match)) {
                ++done_;
                continue;
            }
            if (!whole && match.stop >= certain) break;  // rstrip may reach further
            take(match);
        }
        whole ? pass(length) : pass_certain();
    }
    void take(const added_match& match) {
        finder_.accept(match);
        done_ = match.end;
        pass(match.start);
        words_.added(match.token->id, buffer_[match.start].source, buffer_[match.stop - 1].source + 1,
                     match.blanks);
        passed_ = match.stop;
    }
    // Passes on what was searched, less white space that a later match may take in.
    void pass_certain() {
        int64_t safe = std::min(done_, codes_.size());
        while (safe > passed_ && is_strip_space(codes_[safe - 1])) --safe;
        pass(safe);
    }
    void pass(int64_t stop) {
        for (; passed_ < stop; ++passed_) words_.letter(codes_[passed_], buffer_[passed_].source);
    }
    void clear() {
        buffer_.clear();
        codes_.clear();
        finder_.move(nullptr, 0, std::numeric_limits<int64_t>::max());
        done_ = passed_ = 0;
        search_at_ = kPieceSize;
    }

    const space_folding& folding_;
    const added_token_set& added_;
    sourced_text& buffer_;         // of the segment under way
    pod_vector<uint32_t>& codes_;  // its characters alone
    Words& words_;
    added_token_finder<uint32_t> finder_;
    int64_t num_spaces_ = 0;  // that wait for what follows
    int64_t space_source_ = 0;
    int64_t done_ = 0;    // characters already searched
    int64_t passed_ = 0;  // ... and passed on, or taken by a token
    int64_t search_at_ = kPieceSize;
};

}  // namespace encoder_engine
