// What follows a product of integers: scale, bias, activation, and bytes again.
#pragma once

#include "cpu/activation_kernel.h"
#include "cpu/norm_kernel.h"

namespace encoder_engine {
namespace EE_ISA {

template <typename Element, typename Function>
EE_INLINE void rescale(const rescale_call& call, int64_t first_row, int64_t last_row, float* row_D,
                       const Function& function) {
    const int64_t width = call.width;
    for (int64_t row = first_row; row < last_row; ++row) {
        const float* const input = call.input + row * width;
        const vfloat scale = broadcast(call.input_scales[row]);
        const auto result = [&](int64_t at) {
            const vfloat x = load_part(input, at, width) * scale;
            return function(call.bias == nullptr ? x : x + load_part(call.bias, at, width));
        };
        if (call.quantized == nullptr) {
            Element* const output = static_cast<Element*>(call.output) + row * width;
            for_each_vector(width, [&](int64_t at, int) { store_part(output, at, width, result(at)); });
            continue;
        }
        row_extent extent;
        for_each_vector(width, [&](int64_t at, int) {
            const vfloat y = result(at);
            extent.add(y);
            store(row_D + at, y);
        });
        call.scales[row] = quantize_row(row_D, width, extent, call.quantized + row * width);
    }
}

template <typename Element>
void rescale_rows(const rescale_call& call, int64_t first_row, int64_t last_row, float* row_D) {
    switch (call.function) {
        case activation::none:
            return rescale<Element>(call, first_row, last_row, row_D, [](vfloat x) { return x; });
        case activation::gelu:
            return rescale<Element>(call, first_row, last_row, row_D, [](vfloat x) { return gelu(x); });
        case activation::gelu_tanh:
            return rescale<Element>(call, first_row, last_row, row_D,
                                    [](vfloat x) { return gelu_tanh(x); });
        case activation::silu:
            return rescale<Element>(call, first_row, last_row, row_D, [](vfloat x) { return silu(x); });
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
