// The sum of scores in float32 from the beginning of a text, for words whose pieces are remembered.
//
// SentencePiece adds scores up over the whole text, so that rounding may decide between paths that are
// close to each other, and what a word's pieces are depends on the sum before it. With the sum at most
// T, every sum on a path of n pieces is wrong by less than n * T * 2^-25 (half a unit in the last
// place each). The best path stays the best wherever it is better than any other by more than twice
// as much for either path. Only words of which this is known are remembered, for sums up to a T;
// others are searched anew with the sum that they follow. That sum is reckoned only when it is needed,
// from the tokens since it was known last.
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
    // `bytes` are the ids by byte, if there are any.
    piece_scores(std::vector<float> scores, float unknown, int32_t unknown_id,
                 const std::vector<int32_t>& bytes);

    float unknown() const { return unknown_; }
    // No score is further from zero, nor any above zero further than `rise`.
    double most() const { return most_; }
    double rise() const { return rise_; }
    // The sum behind tokens: `counts` says of how many characters each unknown token is.
    float add(float sum, const int32_t* ids, int64_t count, const pod_vector<int32_t>& counts) const;

private:
    float add_unknown(float sum, int32_t id, const pod_vector<int32_t>& counts, int64_t& next) const;

    std::vector<float> scores_;  // no number: what the token stands for is unknown
    int32_t unknown_id_ = 0;
    std::vector<int32_t> first_bytes_;  // the ids of bytes with which characters begin, in rising order
    float unknown_ = 0.0f;
    double most_ = 0.0, rise_ = 0.0;
};

// There is one memory of words for sums of each size.
constexpr int kNumSumMemories = 3;

// The sum under way in a text.
class piece_sum {
public:
    explicit piece_sum(const piece_scores& scores) : scores_(scores) {}

    // Begins a text whose tokens stand in `ids` from its present end on.
    void restart(const pod_vector<int32_t>& ids) {
        total_ = 0.0f;
        known_to_ = ids.size();
        memory_ = 0;
        forget_unknown();
        set_end();
    }
    // The memory from which words may be taken now, as long as there are fewer tokens than end(); -1:
    // none, the next word is to be searched.
    int choose_memory(const pod_vector<int32_t>& ids);
    int64_t end() const { return end_; }
    // The sum up to the end of the tokens.
    double now(const pod_vector<int32_t>& ids) {
        if (known_to_ < ids.size()) catch_up(ids);
        return before_ = total_;
    }
    // Says that a word of so many characters was searched, how much better its path was than any
    // other, and the sum behind it.
    void searched(const pod_vector<int32_t>& ids, int64_t size, double margin, double sum) {
        total_ = static_cast<float>(sum);
        known_to_ = ids.size();
        size_ = size;
        margin_ = margin;
        set_end();
    }
    // Whether that word has the same pieces wherever a memory is used.
    bool may_be_kept(int memory) const;
    // Says of how many characters an unknown token is that came from memory.
    void add_unknown(int32_t count) {
        counts_.append(count);
        more_ += count - 1;
        set_end();
    }

private:
    // As many tokens must fit that a choice is worth it.
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
    double before_ = 0.0, margin_ = 0.0;  // of the word that was searched last
    int64_t size_ = 0;
};

}  // namespace encoder_engine
