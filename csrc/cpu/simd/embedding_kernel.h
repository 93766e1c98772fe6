// Embedding and pooling: looks up, adds and normalises rows; reduces the rows of a sequence to one.
#pragma once

#include "cpu/simd/norm_kernel.h"

namespace encoder_engine {
namespace EE_ISA {

template <typename Element>
void embed_rows(const embedding_call& call, int64_t first_row, int64_t last_row, float* row_D) {
    const int64_t width = call.width;
    const auto find = [&](const embedding_table& table, int64_t row) EE_INLINED -> const Element* {
        if (table.content == nullptr) return nullptr;
        const int64_t id = table.ids == nullptr ? 0 : table.ids[row];
        return static_cast<const Element*>(table.content) + id * width;
    };
    for (int64_t row = first_row; row < last_row; ++row) {
        const Element* const token = find(call.tokens, row);
        const Element* const segment = find(call.segments, row);
        const Element* const position = find(call.positions, row);
        row_sum sum;
        for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
            vfloat x = load_part(token, at, width);
            if (call.token_scales != nullptr) x = x * call.token_scales[row];
            if (segment != nullptr) x = x + load_part(segment, at, width);
            if (position != nullptr) x = x + load_part(position, at, width);
            store(row_D + at, x);
            sum.parts[part] = sum.parts[part] + x;
        });
        const auto weight = static_cast<const Element*>(call.weight);
        const auto bias = static_cast<const Element*>(call.bias);
        Element* const output = static_cast<Element*>(call.output) + row * width;
        if (weight == nullptr) {
            for_each_vector(width, [&](int64_t at, int) EE_INLINED {
                store_part(output, at, width, load(row_D + at));
            });
            continue;
        }
        const vfloat factor = centre_row(row_D, width, sum, true, call.epsilon);
        for_each_vector(width, [&](int64_t at, int) EE_INLINED {
            store_part(output, at, width, normalized_part(row_D, at, width, factor, weight, bias));
        });
    }
}

// The sum of rows, the i-th times i + 1 where `weighted`, in runs of 64: a longer one rounds more.
template <typename Element>
EE_INLINE vfloat sum_rows(const Element* rows, int64_t count, int64_t at, int64_t width, bool weighted) {
    vfloat total = {};
    for (int64_t first = 0; first < count; first += 64) {
        vfloat part = {};
        for (int64_t row = first; row < least(first + 64, count); ++row) {
            const vfloat x = load_part(rows + row * width, at, width);
            part = part + (weighted ? x * static_cast<float>(row + 1) : x);
        }
        total = total + part;
    }
    return total;
}

// The maximum of each feature; NaN where a row has NaN.
template <typename Element>
EE_INLINE vfloat highest_of_rows(const Element* rows, int64_t count, int64_t at, int64_t width) {
    vfloat most = load_part(rows, at, width);
    for (int64_t row = 1; row < count; ++row) {
        const vfloat x = load_part(rows + row * width, at, width);
        const vfloat more = x > most ? x : most;
        most = x == x ? more : x;
    }
    return most;
}

inline float pooling_divisor(pooling_mode mode, int64_t count) {
    const double n = static_cast<double>(count);
    switch (mode) {
        case pooling_mode::mean: return static_cast<float>(n);
        case pooling_mode::mean_sqrt_len_tokens: return static_cast<float>(__builtin_sqrt(n));
        case pooling_mode::weightedmean: return static_cast<float>(n * (n + 1.0) / 2.0);
        default: return 1.0f;
    }
}

template <typename Element>
void pool_rows(const pooling_call& call, int64_t first_row, int64_t last_row, float* row_D) {
    const int64_t width = call.width;
    for (int64_t row = first_row; row < last_row; ++row) {
        const int64_t count = call.cu_seqlens[row + 1] - call.cu_seqlens[row];
        const Element* const rows = static_cast<const Element*>(call.input) + call.cu_seqlens[row] * width;
        const vfloat divisor = broadcast(pooling_divisor(call.mode, count));
        row_sum squares;
        for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
            vfloat x = {};
            if (count > 0) {
                switch (call.mode) {
                    case pooling_mode::cls: x = load_part(rows, at, width); break;
                    case pooling_mode::lasttoken:
                        x = load_part(rows + (count - 1) * width, at, width);
                        break;
                    case pooling_mode::max: x = highest_of_rows(rows, count, at, width); break;
                    default:
                        x = sum_rows(rows, count, at, width, call.mode == pooling_mode::weightedmean) /
                            divisor;
                }
            }
            store(row_D + at, x);
            squares.parts[part] = squares.parts[part] + x * x;
        });
        vfloat length = broadcast(1.0f);
        if (call.normalized) {
            const float norm = __builtin_sqrtf(squares.total());
            length = broadcast(norm < 1e-12f ? 1e-12f : norm);
        }
        Element* const output = static_cast<Element*>(call.output) + row * width;
        for_each_vector(width, [&](int64_t at, int) EE_INLINED {
            store_part(output, at, width, load(row_D + at) / length);
        });
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
