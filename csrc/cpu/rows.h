// Row-wise operations: the bits of a row depend on neither the other rows nor the number of threads.
#pragma once

#include <cstdint>

#include "cpu/element.h"

namespace encoder_engine {

// output = (x - mean) / sqrt(variance + epsilon) * weight + bias with x = input + residual. Without
// `centred` (RMS norm) the mean is not subtracted, and the mean square replaces the variance.
struct norm_call {
    element_type type;
    const void* input;     // [rows, width], like the residual, the sum and the output
    const void* residual;  // null: none
    const void* weight;    // [width]
    const void* bias;      // [width]; null: none
    void* sum;             // x; null: not wanted
    void* output;
    uint8_t* quantized;    // the output as quantize_rows gives it; null: not wanted
    float* scales;
    int64_t num_rows, width;
    float epsilon;
    bool centred;
    int num_threads;  // at most
};

void normalize_rows(const norm_call& call);

// Normalises heads of rows in place, each by itself: `num_heads` of `width` elements, side by side.
struct head_norm_call {
    element_type type;
    void* heads;         // the first head of row 0
    const void* weight;  // [width]
    const void* bias;    // [width]; null: none
    int64_t num_rows, row_stride;  // elements between rows
    int64_t num_heads, width;
    float epsilon;
    bool centred;
    int num_threads;  // at most
};

void normalize_heads(const head_norm_call& call);

// Rows of a table, [.., width].
struct embedding_table {
    const void* content;  // null: there is none
    const int32_t* ids;   // [rows]; null: all 0
    int64_t num_rows;     // of the table
};

// output = the sum of the tables' rows, normalised as by norm_call.
struct embedding_call {
    element_type type;
    embedding_table tokens, positions, segments;
    const void* weight;  // [width]; null: no norm
    const void* bias;    // [width]; null: none
    void* output;        // [rows, width]
    int64_t num_rows, width;
    float epsilon;
    int num_threads;  // at most
    const float* token_scales = nullptr;  // [rows], factors of the tokens' rows; null: all 1
};

// Throws std::out_of_range for an id outside its table.
void embed_rows(const embedding_call& call);

enum class pooling_mode { cls, lasttoken, max, mean, mean_sqrt_len_tokens, weightedmean };

// One row for each sequence, as ops.pooling defines the modes; zeros for an empty one.
struct pooling_call {
    element_type type;
    pooling_mode mode;
    bool normalized;  // divided by its Euclidean norm, at least 1e-12
    const void* input;          // [tokens, width]
    const int32_t* cu_seqlens;  // [rows + 1]
    void* output;               // [rows, width]
    int64_t num_rows, width;
    int num_threads;  // at most
};

void pool_rows(const pooling_call& call);

enum class activation { none, gelu, gelu_tanh, silu, relu, tanh };

// output = f(input + bias); `gated`: f of the first half times the second half.
struct activation_call {
    element_type type;
    activation function;
    bool gated;
    const void* input;  // [rows, width], gated [rows, 2 width]
    const void* bias;   // [width], gated [2 width]; null: none
    void* output;       // [rows, width]
    int64_t num_rows, width;
    int num_threads;  // at most
};

void activate_rows(const activation_call& call);

// output = input + other.
struct sum_call {
    element_type type;
    const void* input;  // [rows, width], like the other and the output
    const void* other;
    void* output;
    int64_t num_rows, width;
    int num_threads;  // at most
};

void add_rows(const sum_call& call);

// Turns the heads of a row by its position (RoPE, Su et al. 2021): the halves a and b of a head
// become a cos - b sin and b cos + a sin. The heads of a row are contiguous.
struct rotary_call {
    element_type type;
    const void* input;
    void* output;               // may be the input
    const float* table;         // [positions, features turned]: cosines, then sines
    const int32_t* positions;   // [tokens], each within the table
    int64_t num_rows, width;    // width: of all heads
    int64_t head_dim;           // even
    int64_t input_stride, output_stride;  // elements between rows
    int num_threads;            // at most
    const int32_t* rows = nullptr;  // [rows], the token of each; null: row i is token i
    int64_t turned = 0;  // features of a head that are turned, the others are not written; 0: all
};

void rotate_rows(const rotary_call& call);

// output = round(input / scale) + 128, scale = largest magnitude / 127, for each row. A row without a
// magnitude above 2^-100 has scale 1; one with an infinity or NaN has scale NaN.
struct quantize_call {
    element_type type;
    const void* input;  // [rows, width], like the output
    uint8_t* output;
    float* scales;      // [rows]
    int64_t num_rows, width;
    int num_threads;  // at most
};

void quantize_rows(const quantize_call& call);

// Adds logits to a row's softmax: `largest` of all logits so far, `sum` of exp(logit - largest).
struct softmax_sum_call {
    element_type type;
    const void* input;  // [rows, width]
    float* largest;     // [rows], -infinity at first
    float* sum;         // [rows], 0 at first
    int64_t num_rows, width;
    int num_threads;  // at most
};

void add_softmax_sums(const softmax_sum_call& call);

// output[row] = the `row_bytes` bytes of input[rows[row]] from byte `first` on.
struct take_call {
    const void* input;    // [.., row_bytes]
    const int32_t* rows;  // [rows]
    void* output;         // [rows, row_bytes]
    int64_t num_rows, row_bytes;
    int num_threads;  // at most
    int64_t first = 0, input_row_bytes = 0;  // of an input row; 0: row_bytes
};

void take_rows(const take_call& call);

// output[rows[row]] = input[row]: the reverse, where the input's rows are counted.
void put_rows(const take_call& call);

// output = the `kernel_size` rows around each row, one after another; zeros beyond its sequence.
struct neighbours_call {
    const void* input;          // [rows, row_bytes]
    void* output;               // [rows, kernel_size, row_bytes]
    const int32_t* cu_seqlens;  // [sequences + 1]
    int64_t num_sequences, num_rows, row_bytes;
    int64_t kernel_size;        // odd
    int num_threads;            // at most
};

void take_neighbours(const neighbours_call& call);

}  // namespace encoder_engine
