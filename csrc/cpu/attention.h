// Softmax attention within each of several packed sequences.
#pragma once

#include <cstdint>

#include "cpu/element.h"

namespace encoder_engine {

// Rows of heads: `data` + token * token_stride + head * head_stride, in elements; the elements of one
// head are contiguous.
struct head_rows {
    const void* data;
    int64_t token_stride;
    int64_t head_stride;
};

struct attention_call {
    element_type type;
    head_rows query, key, value;
    void* output;               // [tokens, heads, head size], contiguous
    const int32_t* cu_seqlens;  // [sequences + 1]: where each begins, and the end; not falling
    int64_t num_sequences;
    int64_t num_heads, num_key_heads, head_dim;  // query heads share key heads in order
    float scale;
    int64_t window;              // tokens seen to either side; negative: all
    bool causal;                 // no token sees a later one
    const float* alibi_slopes;   // [heads]: times the distance, taken off each score; null: none
    int num_threads;  // at most
};

// A sequence's bits depend on its own rows alone: neither on the other sequences nor on the number of
// threads.
void attention(const attention_call& call);

}  // namespace encoder_engine
