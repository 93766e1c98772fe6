// Bounds on rounding, and sums of the tokens that came from memory.
#include "text/piece_sums.h"

#include <algorithm>

namespace encoder_engine {
namespace {

// The greatest sum within a word that may be in each memory ...
constexpr double kGreatest[sum_range::kNumMemories] = {32768.0, 262144.0};
// ... and before it: at 100,000, SentencePiece begins anew.
constexpr double kBefore[sum_range::kNumMemories] = {16384.0, 100000.0};

}  // namespace

piece_scores::piece_scores(std::vector<float> scores, float unknown, int32_t unknown_id,
                           const std::vector<int32_t>& bytes)
    : scores_(std::move(scores)), kinds_(scores_.size(), kPlain), unknown_(unknown),
      most_(std::max(1.0, std::abs(static_cast<double>(unknown)))) {
    const auto mark = [this](int32_t id, uint8_t kind) {
        const auto place = static_cast<size_t>(id);
        if (place >= kinds_.size()) {
            kinds_.resize(place + 1, kPlain);
            scores_.resize(place + 1, 0.0f);
        }
        kinds_[place] = kind;
    };
    mark(unknown_id, kUnknown);
    for (size_t byte = 0; byte < bytes.size(); ++byte) {
        mark(bytes[byte], (byte & 0xC0) == 0x80 ? kOtherByte : kFirstByte);
    }
    rise_ = std::max(0.0, static_cast<double>(unknown));
    for (size_t i = 0; i < scores_.size(); ++i) {
        if (kinds_[i] != kPlain) continue;
        const auto score = static_cast<double>(scores_[i]);
        most_ = std::max(most_, std::abs(score));
        rise_ = std::max(rise_, score);
    }
}

float piece_scores::add(float sum, const int32_t* ids, int64_t count,
                        const pod_vector<int32_t>& counts) const {
    int64_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
        const auto id = static_cast<size_t>(ids[i]);
        switch (kinds_[id]) {
            case kPlain: sum += scores_[id]; break;
            case kUnknown:
                for (int32_t left = counts[next++]; left > 0; --left) sum += unknown_;
                break;
            case kFirstByte: sum += unknown_; break;
            default: break;
        }
    }
    return sum;
}

void piece_sum::catch_up(const pod_vector<int32_t>& ids) {
    total_ = scores_.add(total_, ids.data() + known_to_, ids.size() - known_to_, counts_);
    known_to_ = ids.size();
    forget_unknown();
}

sum_range piece_sum::range(const pod_vector<int32_t>& ids) {
    // A unit may be a character without a piece, and each word has a mark.
    const double unit = 2.0 * scores_.most();
    const auto units = [&](int memory) {
        return static_cast<int64_t>((kBefore[memory] - bound(ids)) / unit);
    };
    if (units(0) >= kLeastUnits) return {0, units(0)};
    if (known_to_ < ids.size()) catch_up(ids);
    for (int memory = 0; memory < sum_range::kNumMemories; ++memory) {
        if (units(memory) >= kLeastUnits) return {memory, units(memory)};
    }
    return {-1, 0};
}

bool piece_sum::may_be_kept(int memory) const {
    if (memory < 0) return false;
    const auto pieces = static_cast<double>(size_);
    const double greatest = kGreatest[memory];
    // The margin was found with sums that were rounded: so much again.
    const double rounding = 4.0 * pieces * greatest / 33554432.0;
    // No sum within this path, or one that is nearly as good, is further from the one before.
    const double reach =
        std::abs(static_cast<double>(total_) - before_) + pieces * (1.0 + 2.0 * scores_.rise());
    return margin_ > rounding && reach < greatest / 4.0;
}

}  // namespace encoder_engine
