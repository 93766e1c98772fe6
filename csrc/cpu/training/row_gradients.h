// Operations on rows with their gradients: norms, activations, embeddings, the cross-entropy.
#pragma once

#include <cstdint>

#include "cpu/element.h"
#include "cpu/rows.h"

namespace encoder_engine {

// Rows of a chunk: sums over rows are of chunks, and then of their sums in order, so that their bits do
// not depend on the number of threads.
constexpr int64_t kChunkRows = 64;

// Norm of dropout(input) + residual. The input has its own type; residual, sum, output and the
// gradients of all three have the other, which is at least as wide.
struct norm_training_call {
    element_type input_type, type;
    const void* input;
    const void* residual;  // null: none
    const float* weight;
    const float* bias;  // null: none
    void* sum;          // null: not needed
    void* output;
    float* statistics;  // [rows, 2]: mean and reciprocal deviation
    int64_t num_rows, width;
    float epsilon;
    bool centred;
    float dropout;
    uint64_t seed;
    int num_threads;
};
void normalize_for_training(const norm_training_call& call);

struct norm_gradient_call {
    element_type input_type, type;
    const void* summed;  // of sum_type: the sum, or the input where they are one
    element_type summed_type;
    const float* statistics;
    const float* weight;
    const void* grad_output;
    const void* grad_sum;   // null: none
    void* grad_input;       // of input_type; null: not wanted
    void* grad_residual;    // null: not wanted
    float* grad_weight;     // [width]
    float* grad_bias;       // [width]
    int64_t num_rows, width;
    bool centred;
    float dropout;
    uint64_t seed;
    int num_threads;
};
void norm_gradient(const norm_gradient_call& call);

// The gradient of activate_rows(): of the input, and of the bias as sums over rows.
struct activation_gradient_call {
    element_type type;
    activation function;
    bool gated;
    const void* input;
    const void* bias;  // null: none
    const void* grad_output;
    void* grad_input;
    float* grad_bias;  // null: not wanted
    int64_t num_rows, width;  // of the output
    int num_threads;
};
void activation_gradient(const activation_gradient_call& call);

// output[c] = sum over rows of factors[r] * input[r, c].
struct column_sum_call {
    element_type type;
    const void* input;
    int64_t stride;
    const float* factors;  // null: 1
    float* output;
    int64_t num_rows, width;
    int num_threads;
};
void sum_columns(const column_sum_call& call);

// table[ids[r]] += rows[r], the rows of one id in their order.
struct table_gradient_call {
    const float* rows;  // [rows, width]
    const int32_t* ids;  // null: all 0
    const float* factors;  // [rows]; null: 1
    float* table;
    int64_t num_rows, width;
    int num_threads;
};
void add_table_rows(const table_gradient_call& call);

// output = input * dropout factors, of either type; the gradient is the same call.
struct dropout_call {
    element_type type;
    const void* input;
    void* output;
    int64_t num_rows, width;
    float dropout;
    uint64_t seed;
    int num_threads;
};
void drop_features(const dropout_call& call);

// Statistics of rows of logits, and the gradient of their losses in place of the logits.
struct cross_entropy_call {
    element_type type;
    void* logits;  // [rows, vocabulary]
    const int64_t* labels;  // outside of the vocabulary: no label
    float* lse;
    float* label_logits;
    float* logit_sums;
    int64_t* predictions;  // null: not wanted
    int64_t num_rows, vocabulary;
    bool keeps_gradient;
    float label_smoothing, z_loss;
    int num_threads;
};
void cross_entropy_rows(const cross_entropy_call& call);

}  // namespace encoder_engine
