// Normalisation of heads within rows, in place.
#pragma once

#include "cpu/simd/norm_kernel.h"

namespace encoder_engine {
namespace EE_ISA {

template <typename Element>
void normalize_heads(const head_norm_call& call, int64_t first_row, int64_t last_row, float* row_D) {
    const int64_t width = call.width;
    const Element* const weight = static_cast<const Element*>(call.weight);
    const Element* const bias = static_cast<const Element*>(call.bias);
    for (int64_t row = first_row; row < last_row; ++row) {
        for (int64_t head = 0; head < call.num_heads; ++head) {
            Element* const x_D = static_cast<Element*>(call.heads) + row * call.row_stride + head * width;
            row_sum sum;
            for_each_vector(width, [&](int64_t at, int part) {
                const vfloat x = load_part(x_D, at, width);
                store(row_D + at, x);
                sum.parts[part] = sum.parts[part] + x;
            });
            const vfloat factor = centre_row(row_D, width, sum, call.centred, call.epsilon);
            for_each_vector(width, [&](int64_t at, int) {
                store_part(x_D, at, width, normalized_part(row_D, at, width, factor, weight, bias));
            });
        }
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
