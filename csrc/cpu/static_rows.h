// Static embeddings: the mean of the rows that a table has for the tokens of a text.
#pragma once

#include <cstdint>

#include "cpu/element.h"

namespace encoder_engine {

enum class table_type { float32, float16, bfloat16, int8 };

// The mean of the table's rows of each text's tokens; zeros for a text without one.
struct static_call {
    table_type type;
    const void* table;          // [.., row_width], of which the first `width` elements are read
    const int32_t* ids;         // [tokens]
    const int32_t* cu_seqlens;  // [rows + 1]
    const int32_t* mapping;     // the row of each id; null: the id itself
    const float* weights;       // the factor of each id; null: 1
    int32_t left_out;           // an id that is neither added nor counted; -1: none
    bool normalized;            // divided by its Euclidean norm, at least 1e-12
    float* output;              // [rows, width]
    int64_t num_rows, row_width, width;
    int64_t num_ids;  // ids are below
    int num_threads;  // at most
};

// Throws std::out_of_range for an id that is not below num_ids.
void mean_static_rows(const static_call& call);

}  // namespace encoder_engine
