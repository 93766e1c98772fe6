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

// Vectors that stand for distances, multiplied by queries and keys (DeBERTa, He et al. 2021): adds
// scale * (query . keys[n] + key . queries[n]) to a score, n the entry of the distance.
struct distance_vectors {
    head_rows keys{};     // [vectors, heads, head size]; null: none
    head_rows queries{};  // likewise
    const int32_t* entries = nullptr;  // [2 reach + 1], of the distances -reach to reach; null: none
    int64_t reach = 0;
};

// Where statistics of the weights of each query and head are written.
struct attention_statistics {
    const uint8_t* marks;  // [tokens, num_marks], 0 or 1: what kinds of key a token is
    int64_t num_marks;
    // [queries, heads, 6 + num_marks]: the greatest weight, the entropy in nats, the mean distance in
    // tokens, the weights of the tokens before, at and after the query, the sum of each mark's keys.
    float* values;     // null: no statistics
    int64_t* offsets;  // [queries, heads]: position of the greatest weight less the query's, the first of equals
};

struct attention_call {
    element_type type;
    head_rows query, key, value;
    void* output;               // [queries, heads, head size], contiguous
    const int32_t* cu_seqlens;  // [sequences + 1]: where each begins, and the end; not falling
    int64_t num_sequences;
    int64_t num_heads, num_key_heads, head_dim;  // query heads share key heads in order
    float scale;
    int64_t window;              // tokens seen to either side; negative: all
    bool causal;                 // no token sees a later one
    const float* alibi_slopes;   // [heads]: times the distance, taken off each score; null: none
    int num_threads;  // at most
    // Some tokens alone as queries: query and output have a row for each.
    const int32_t* query_rows = nullptr;  // [queries], rising tokens; null: query i is token i
    const int32_t* cu_queries = nullptr;  // [sequences + 1]: where each sequence's begin; null: all tokens
    // Added to each score: bias[head][clamp(distance, -reach, reach) + reach].
    const float* relative_bias = nullptr;  // [heads, 2 bias_reach + 1]; null: none
    int64_t bias_reach = 0;
    distance_vectors distances{};  // of which global rows know nothing
    // Tokens that every query of their sequence sees, beyond the window too.
    const int32_t* global_rows = nullptr;  // rising; null: none
    const int32_t* cu_global = nullptr;    // [sequences + 1]
    attention_statistics statistics{};
};

// A sequence's bits depend on its own rows alone: neither on the other sequences nor on the number of
// threads.
void attention(const attention_call& call);

}  // namespace encoder_engine
