// Rotary position embeddings.
#pragma once

#include "cpu/rows.h"
#include "cpu/simd/element_vector.h"

namespace encoder_engine {
namespace EE_ISA {

template <typename Element>
void rotate_rows(const rotary_call& call, int64_t first_row, int64_t last_row, float*) {
    const int64_t half = (call.turned == 0 ? call.head_dim : call.turned) / 2;
    for (int64_t row = first_row; row < last_row; ++row) {
        const int64_t token = call.rows == nullptr ? row : call.rows[row];
        const float* const cosines = call.table + call.positions[token] * 2 * half;
        const float* const sines = cosines + half;
        const Element* input = static_cast<const Element*>(call.input) + row * call.input_stride;
        Element* output = static_cast<Element*>(call.output) + row * call.output_stride;
        for (int64_t head = 0; head < call.width; head += call.head_dim) {
            for (int64_t at = 0; at < half; at += kLanes) {
                const vfloat a = load_part(input, at, half), b = load_part(input + half, at, half);
                const vfloat c = load_part(cosines, at, half), s = load_part(sines, at, half);
                store_part(output, at, half, a * c - b * s);
                store_part(output + half, at, half, b * c + a * s);
            }
            input += call.head_dim;
            output += call.head_dim;
        }
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
