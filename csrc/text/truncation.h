// How many tokens of each text stay, and which slices the overflow rows take.
#pragma once

#include <cstdint>
#include <vector>

#include "text/status.h"

namespace encoder_engine {

enum class truncation_strategy : uint8_t { none, longest_first, only_first, only_second };

struct kept_lengths {
    int64_t first;
    int64_t second;
};

// Shares `room` tokens between two texts of the given lengths, as the library does; `second` is 0
// for a single text. Without a strategy everything stays.
status share_room(truncation_strategy strategy, int64_t room, bool paired, int64_t first,
                  int64_t second, kept_lengths& kept);

struct token_range {
    int64_t start;
    int64_t stop;
};

// The slices of `keep` tokens that cover `length` tokens, neighbours sharing `stride`; the row
// proper comes first. From the left end for right truncation, from the right end for left.
status overflow_ranges(int64_t length, int64_t keep, int64_t stride, bool left,
                       std::vector<token_range>& ranges);

}  // namespace encoder_engine
