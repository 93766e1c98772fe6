// The dense layer in 8-bit integers: exact sums of products, and in the same pass what follows them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/element.h"
#include "cpu/rows.h"

namespace encoder_engine {

// A weight [width, depth] laid out for every instruction set alike: in panels of kPanelWidth features
// out, within a panel by kDepthGroup features in, so that they lie as [panels][groups][kPanelWidth]
// [kDepthGroup], zeros where there is no feature; after them, for each feature out, what 128 in place
// of 0 adds to its sum, taken off.
constexpr int64_t kPanelWidth = 64;
constexpr int64_t kDepthGroup = 4;
constexpr int64_t kDepthUnit = 64;  // the depth is filled up to a multiple of it

inline int64_t packed_weight_bytes(int64_t width, int64_t depth) {
    return whole(width, kPanelWidth) * (whole(depth, kDepthUnit) + int64_t{sizeof(int32_t)});
}
void pack_weight(const int8_t* plain, int64_t width, int64_t depth, int8_t* packed);
void unpack_weight(const int8_t* packed, int64_t width, int64_t depth, int8_t* plain);

// output = f((input - 128) * input scale . (weight * weight scale) + bias), or, where `quantized` is
// wanted, that as quantize_rows gives it and no output.
struct quantized_linear_call {
    element_type type;  // of the output
    activation function;
    const uint8_t* input;        // [rows, depth]
    const float* input_scales;   // [rows]
    const int8_t* weight;        // packed, 64-byte aligned
    const float* weight_scales;  // [width]
    const float* bias;           // [width]; null: none
    void* output;                // [rows, width]
    uint8_t* quantized;          // [rows, width]; null: not wanted
    float* scales;               // [rows]
    int64_t num_rows, depth, width;
    int num_threads;  // at most

    int64_t panel_bytes() const { return kPanelWidth * whole(depth, kDepthUnit); }
    int64_t num_panels() const { return (width + kPanelWidth - 1) / kPanelWidth; }
    const int32_t* corrections() const {
        return reinterpret_cast<const int32_t*>(weight + num_panels() * panel_bytes());
    }
};

// A row's bits depend on no other row and on no number of threads.
void quantized_linear(const quantized_linear_call& call);

}  // namespace encoder_engine
