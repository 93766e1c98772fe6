// Texts in ascending order of their bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "text/token_list.h"

namespace encoder_engine {

struct sorted_text {
    uint64_t head;   // the first eight bytes, the first one highest, zeros behind the end
    uint32_t place;  // in the list
    uint32_t size;   // bytes
};

// Sorts the texts of a list; equal ones stay in the order in which they stand.
std::vector<sorted_text> sort_texts(const token_list& tokens);

}  // namespace encoder_engine
