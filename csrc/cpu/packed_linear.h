// The dense layer in float32 and bfloat16 with a packed weight, bias and activation in the same pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/element.h"
#include "cpu/rows.h"
#include "cpu/weight_panels.h"

namespace encoder_engine {

inline int64_t element_bytes(element_type type) { return type == element_type::float32 ? 4 : 2; }

// Packs a weight [width, depth] into panels, and the bias with them: each sum begins with the bias.
// A null bias counts as zeros.
void pack_linear(element_type type, const void* weight, const void* bias, int64_t width, int64_t depth,
                 void* packed, int num_threads);

// output = f(input . weight + bias). With `gated` there are twice as many features, of which f of the
// first half is multiplied by the second half, as by activate_rows; `width`, of the output, is a
// multiple of kPanelWidth.
struct packed_linear_call {
    element_type type;
    activation function;
    const void* input;   // [rows, depth]
    const void* weight;  // packed, 64-byte aligned
    void* output;        // [rows, width]
    int64_t num_rows, depth, width;
    int num_threads;  // at most
    bool gated = false;

    int64_t num_features() const { return gated ? 2 * width : width; }
    int64_t row_bytes() const { return depth * element_bytes(type); }
};

// A row's bits depend on no other row and on no number of threads.
void packed_linear(const packed_linear_call& call);

}  // namespace encoder_engine
