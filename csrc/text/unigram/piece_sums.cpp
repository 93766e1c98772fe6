// Bounds on rounding, and sums of the tokens that came from memory.
#include "text/unigram/piece_sums.h"

#include <algorithm>
#include <limits>

namespace encoder_engine {
namespace {

// The greatest sum within a word that may be in each memory, and before it. Beyond 100,000 SentencePiece
// begins anew. Within a word from a memory no sum is further from the one before it than kMostWeight.
constexpr double kMostWeight = 4096.0;
constexpr double kGreatest[kNumSumMemories] = {16384.0, 65536.0, 131072.0};
constexpr double kBefore[kNumSumMemories] = {16384.0 - kMostWeight, 65536.0 - kMostWeight,
                                             100000.0 - kMostWeight};
// The most by which an addition is wrong that gives less than 131,072.
constexpr double kRounding = 1.0 / 256.0;

}  // namespace

piece_scores::piece_scores(std::vector<float> scores, float unknown, int32_t unknown_id,
                           const std::vector<int32_t>& bytes)
    : scores_(std::move(scores)), unknown_id_(unknown_id), unknown_(unknown),
      most_(std::max(1.0, std::abs(static_cast<double>(unknown)))) {
    for (const float score : scores_) most_ = std::max(most_, std::abs(static_cast<double>(score)));
    most_ += kRounding;
    const auto mark = [this](int32_t id) {
        const auto place = static_cast<size_t>(id);
        if (place >= scores_.size()) scores_.resize(place + 1, 0.0f);
        scores_[place] = std::numeric_limits<float>::quiet_NaN();
    };
    mark(unknown_id);
    for (size_t byte = 0; byte < bytes.size(); ++byte) {
        mark(bytes[byte]);
        if ((byte & 0xC0) != 0x80) first_bytes_.push_back(bytes[byte]);
    }
    std::sort(first_bytes_.begin(), first_bytes_.end());
}

float piece_scores::add(float sum, const int32_t* ids, int64_t count,
                        const pod_vector<int32_t>& counts) const {
    int64_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
        const float score = scores_[static_cast<size_t>(ids[i])];
        sum = std::isnan(score) ? add_unknown(sum, ids[i], counts, next) : sum + score;
    }
    return sum;
}

float piece_scores::add_unknown(float sum, int32_t id, const pod_vector<int32_t>& counts,
                                int64_t& next) const {
    int32_t characters = 0;
    if (id == unknown_id_) {
        characters = counts[next++];
    } else {
        characters = std::binary_search(first_bytes_.begin(), first_bytes_.end(), id);
    }
    for (; characters > 0; --characters) sum += unknown_;
    return sum;
}

void piece_sum::catch_up(const pod_vector<int32_t>& ids) {
    total_ = scores_.add(total_, ids.data() + known_to_, ids.size() - known_to_, counts_);
    known_to_ = ids.size();
    forget_unknown();
    set_end();
}

// Every token since may be as bad as can be.
void piece_sum::set_end() {
    const double room = kBefore[memory_] - std::abs(static_cast<double>(total_));
    end_ = known_to_ - more_ + static_cast<int64_t>(room / scores_.most());
}

int piece_sum::choose_memory(const pod_vector<int32_t>& ids) {
    const auto suffices = [&](int memory) {
        memory_ = memory;
        set_end();
        return end_ >= ids.size() + kLeastTokens;
    };
    if (suffices(0)) return 0;
    if (known_to_ < ids.size()) catch_up(ids);
    for (int memory = 0; memory < kNumSumMemories; ++memory) {
        if (suffices(memory)) return memory;
    }
    return -1;
}

bool piece_sum::may_be_kept(int memory) const {
    if (memory < 0) return false;
    const auto pieces = static_cast<double>(size_);
    const double greatest = kGreatest[memory];
    // The margin was found with sums that were rounded: so much again.
    const double rounding = 4.0 * pieces * greatest / 33554432.0;
    // No path to a place within the word has more pieces than there are characters up to there.
    return margin_ > rounding && pieces * scores_.most() < kMostWeight;
}

}  // namespace encoder_engine
