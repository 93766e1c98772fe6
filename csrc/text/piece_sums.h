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
    // Scores of these are those of their characters, which are unknown.
    enum : uint8_t { kPlain, kUnknown, kFirstByte, kOtherByte };

    std::vector<float> scores_;
    std::vector<uint8_t> kinds_;
    float unknown_ = 0.0f;
    double most_ = 0.0, rise_ = 0.0;
};

// One memory of words for sums of each size.
struct sum_range {
    static constexpr int kNumMemories = 2;
    int memory;     // -1: none, every word is to be searched
    int64_t units;  // as many of the words' units may follow
};

// The sum under way in a text.
class piece_sum {
public:
    explicit piece_sum(const piece_scores& scores) : scores_(scores) {}

    // Begins a text whose tokens stand in `ids` from its present end on.
    void restart(const pod_vector<int32_t>& ids) {
        total_ = 0.0f;
        known_to_ = ids.size();
        forget_unknown();
    }
    // Which words may be taken from memory now.
    sum_range range(const pod_vector<int32_t>& ids);
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
    }
    // Whether that word has the same pieces wherever a memory is used.
    bool may_be_kept(int memory) const;
    // Says of how many characters an unknown token is that came from memory.
    void add_unknown(int32_t count) {
        counts_.append(count);
        more_ += count - 1;
    }

private:
    static constexpr int64_t kLeastUnits = 64;

    void catch_up(const pod_vector<int32_t>& ids);
    void forget_unknown() {
        counts_.clear();
        more_ = 0;
    }
    // At most so large the sum is, whatever the tokens since.
    double bound(const pod_vector<int32_t>& ids) const {
        const auto pieces = static_cast<double>(ids.size() - known_to_ + more_);
        return std::abs(static_cast<double>(total_)) + pieces * scores_.most();
    }

    const piece_scores& scores_;
    float total_ = 0.0f;
    int64_t known_to_ = 0;          // tokens of which it is the sum
    pod_vector<int32_t> counts_;    // of the unknown tokens since
    int64_t more_ = 0;
    double before_ = 0.0, margin_ = 0.0;  // of the word that was searched last
    int64_t size_ = 0;
};

}  // namespace encoder_engine
