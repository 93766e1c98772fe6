// The truncation rules of Hugging Face tokenizers 0.23, on lengths alone.
#include "text/truncation.h"

#include <algorithm>
#include <utility>

namespace encoder_engine {
namespace {

kept_lengths share_longest_first(int64_t room, int64_t first, int64_t second) {
    const bool swapped = first > second;
    int64_t shorter = std::min(first, second);
    int64_t longer = shorter > room ? shorter : std::max(shorter, room - shorter);
    if (shorter + longer > room) {
        shorter = room / 2;
        longer = shorter + room % 2;
    }
    return swapped ? kept_lengths{longer, shorter} : kept_lengths{shorter, longer};
}

}  // namespace

status share_room(truncation_strategy strategy, int64_t room, bool paired, int64_t first,
                  int64_t second, kept_lengths& kept) {
    kept = {first, second};
    if (strategy == truncation_strategy::none || first + second <= room) return {};
    if (room == 0) {
        kept = {0, 0};
        return {};
    }
    switch (strategy) {
        case truncation_strategy::longest_first:
            kept = paired ? share_longest_first(room, first, second) : kept_lengths{room, 0};
            return {};
        case truncation_strategy::only_first:
            if (second >= room) return {error_code::cannot_truncate, -1, second, false};
            kept.first = room - second;
            return {};
        case truncation_strategy::only_second:
            if (first >= room) return {error_code::cannot_truncate, -1, first, true};
            kept.second = room - first;
            return {};
        case truncation_strategy::none: break;
    }
    return {};
}

status overflow_ranges(int64_t length, int64_t keep, int64_t stride, bool left,
                       std::vector<token_range>& ranges) {
    ranges.clear();
    if (length <= keep) {
        ranges.push_back({0, length});
        return {};
    }
    if (stride >= keep) return {error_code::stride_too_large, -1, keep, false};
    for (int64_t done = 0;; done += keep - stride) {
        const int64_t reach = std::min(done + keep, length);
        ranges.push_back(left ? token_range{length - reach, length - done}
                              : token_range{done, reach});
        if (reach == length) return {};
    }
}

}  // namespace encoder_engine
