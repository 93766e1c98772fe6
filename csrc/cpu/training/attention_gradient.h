// Attention for training: the forward pass with dropout, and the gradients.
#pragma once

#include <cstdint>

#include "cpu/attention.h"
#include "cpu/element.h"

namespace encoder_engine {

struct attention_training_call {
    element_type type;  // of all tensors but statistics, slopes and bias
    head_rows query, key, value;
    void* output;       // [queries, heads, head size], contiguous
    float* statistics;  // [queries, heads]: log2 of the sum of 2^(score log2(e))
    const int32_t* cu_seqlens;
    int64_t num_sequences, num_heads, num_key_heads, head_dim;
    float scale;
    int64_t window;  // tokens seen to either side; negative: all
    bool causal;
    const float* slopes;         // ALiBi, [heads]; null: none
    const float* relative_bias;  // [heads, 2 bias_reach + 1]; null: none
    int64_t bias_reach;
    const int32_t* query_rows;  // rising tokens; null: query i is token i
    const int32_t* cu_queries;  // null: all tokens
    float dropout;
    uint64_t seed;
    int num_threads;
    // Of the backward pass; null in the forward pass.
    const void* grad_output;  // as the output
    head_rows grad_query, grad_key, grad_value;  // written
    float* grad_bias;         // as relative_bias; null: not wanted

    bool is_backward() const { return grad_key.data != nullptr; }
    bool has_terms() const {
        return window >= 0 || causal || slopes != nullptr || relative_bias != nullptr;
    }
};

// The queries of one sequence with a head of keys, and the query heads that share it.
struct attention_training_piece {
    int64_t sequence;
    int64_t first_row, length;
    int64_t first_query, num_queries;
    int64_t last_place;  // of the queries in the sequence
    int64_t key_head;
    float* grad_bias;  // [heads, 2 bias_reach + 1] of this sequence; null: not wanted
};

// Bits depend neither on the number of threads nor on other sequences.
void attend_for_training(const attention_training_call& call);

}  // namespace encoder_engine
