// The dense layer in 8-bit integers: exact sums, then bias, activation and quantization in one pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/element.h"
#include "cpu/rows.h"
#include "cpu/weight_panels.h"

namespace encoder_engine {

// Packs int8 [width, depth] into panels; a sum begins with -128 times the sum of the feature's weights,
// which cancels the zero point 128.
void pack_weight(const int8_t* plain, int64_t width, int64_t depth, int8_t* packed, int num_threads);

// output = f((input - 128) * input scale . (weight * weight scale) + bias). With `quantized`, the
// result is quantize_rows of output, which is rounded to `type` before it with `gated` alone. `gated`:
// see packed_linear_call.
struct quantized_linear_call {
    element_type type;  // of the output
    activation function;
    const uint8_t* input;        // [rows, depth]
    const float* input_scales;   // [rows]
    const int8_t* weight;        // packed, 64-byte aligned
    const float* weight_scales;  // [features]
    const float* bias;           // [features]; null: none
    void* output;                // [rows, width]
    uint8_t* quantized;          // [rows, width]; null: not wanted
    float* scales;               // [rows]
    int64_t num_rows, depth, width;
    int num_threads;  // at most
    bool gated = false;

    int64_t num_features() const { return gated ? 2 * width : width; }
};

// A row's bits depend on no other row and on no number of threads.
void quantized_linear(const quantized_linear_call& call);

}  // namespace encoder_engine
