// Sums of scores in float32 from the beginning of a text, for words whose pieces are remembered.
//
// SentencePiece adds scores up over the whole text. Rounding may decide between paths that are close to
// each other, so a word's pieces may depend on the sum before the word. A word is remembered only where
// they do not, for every sum before it at which its memory is used:
// - Rounding. Let no sum be further from zero than T. Each addition is wrong by at most half a unit in
//   the last place, at most T * 2^-25; the sum of a path of n pieces by n times that. The best path stays
//   the best if it is better than any other by twice as much for either path.
// - Beginning anew. SentencePiece does so where the sum at any place is beyond 100,000, even if the best
//   path jumps over that place. No sum within a word of n characters is further from the one before it
//   than n times the greatest score, which must stay below what a memory leaves for it.
// Other words are searched each time, with the sum of all tokens before them. It is added up when it is
// needed, from the tokens since it was known last.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/pod_vector.h"

namespace encoder_engine {

// The scores of a SentencePiece model by id.
class piece_scores {
public:
    piece_scores() = default;
    // `bytes` are the ids of byte pieces by byte; empty: no byte fallback.
    piece_scores(std::vector<float> scores, float unknown, int32_t unknown_id,
                 const std::vector<int32_t>& bytes);

    float unknown() const { return unknown_; }
    // The most by which one piece changes a sum, rounding included.
    double most() const { return most_; }
    // Returns the sum after tokens; `counts` holds the number of characters of each unknown token.
    float add(float sum, const int32_t* ids, int64_t count, const pod_vector<int32_t>& counts) const;

private:
    float add_unknown(float sum, int32_t id, const pod_vector<int32_t>& counts, int64_t& next) const;

    std::vector<float> scores_;  // no number: what the token stands for is unknown
    int32_t unknown_id_ = 0;
    std::vector<int32_t> first_bytes_;  // the ids of bytes with which characters begin, in rising order
    float unknown_ = 0.0f;
    double most_ = 0.0;
};

// The number of word caches, one for each range of sums.
constexpr int kNumSumMemories = 3;

// Keeps the sum of the scores along a text.
class piece_sum {
public:
    explicit piece_sum(const piece_scores& scores) : scores_(scores) {}

    // Begins a text whose tokens will follow the present end of `ids`.
    void restart(const pod_vector<int32_t>& ids) {
        total_ = 0.0f;
        known_to_ = ids.size();
        memory_ = 0;
        forget_unknown();
        set_end();
    }
    // Returns the cache that serves the next words while there are fewer than end() tokens; -1:
    // none, search the next word.
    int choose_memory(const pod_vector<int32_t>& ids);
    int64_t end() const { return end_; }
    // The sum up to the end of the tokens.
    double now(const pod_vector<int32_t>& ids) {
        if (known_to_ < ids.size()) catch_up(ids);
        return total_;
    }
    // Records a searched word: its number of characters, the margin of its path over any other, and
    // the sum after it.
    void searched(const pod_vector<int32_t>& ids, int64_t size, double margin, double sum) {
        total_ = static_cast<float>(sum);
        known_to_ = ids.size();
        size_ = size;
        margin_ = margin;
        set_end();
    }
    // Whether the searched word has the same pieces at every sum that a cache serves.
    bool may_be_kept(int memory) const;
    // Records an unknown token from a cache, and its number of characters.
    void add_unknown(int32_t count) {
        counts_.append(count);
        more_ += count - 1;
        set_end();
    }

private:
    // The least room, in tokens, for which choosing a cache pays.
    static constexpr int64_t kLeastTokens = 32;

    void set_end();
    void catch_up(const pod_vector<int32_t>& ids);
    void forget_unknown() {
        counts_.clear();
        more_ = 0;
    }
    const piece_scores& scores_;
    float total_ = 0.0f;
    int64_t known_to_ = 0;          // tokens of which it is the sum
    pod_vector<int32_t> counts_;    // of the unknown tokens since
    int64_t more_ = 0;              // characters of theirs besides one each
    int memory_ = 0;
    int64_t end_ = 0;
    double margin_ = 0.0;           // of the word that was searched last
    int64_t size_ = 0;              // ... and its characters
};

}  // namespace encoder_engine
