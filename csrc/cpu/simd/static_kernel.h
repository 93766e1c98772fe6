// Static embeddings: the mean of the rows that a table has for the tokens of a text.
#pragma once

#include "cpu/simd/norm_kernel.h"
#include "cpu/static_rows.h"

namespace encoder_engine {
namespace EE_ISA {

// Rows of a run of tokens, and the factor of each.
template <typename Element>
struct token_run {
    static constexpr int kMost = 64;
    const Element* rows[kMost];
    float factors[kMost];
    int count = 0;
};

// The first lines of a row are on their way while the run is collected; the rest follows in order.
template <typename Element>
EE_INLINE void prefetch_row(const Element* row, int64_t width) {
    const char* const first = reinterpret_cast<const char*>(row);
    const int64_t bytes = least<int64_t>(width * static_cast<int64_t>(sizeof(Element)), 256);
    for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(first + at);
}

// total_D += the sum of the run's rows. Four vectors at a time stay in registers.
template <typename Element>
EE_INLINE void add_run(const token_run<Element>& run, int64_t width, float* total_D) {
    int64_t at = 0;
    for (; at + 4 * kLanes <= width; at += 4 * kLanes) {
        vfloat sums[4] = {};
        for (int i = 0; i < run.count; ++i) {
            const vfloat factor = broadcast(run.factors[i]);
#pragma GCC unroll 4
            for (int part = 0; part < 4; ++part) {
                sums[part] = sums[part] + factor * load_elements(run.rows[i] + at + part * kLanes);
            }
        }
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) {
            float* const place = total_D + at + part * kLanes;
            store(place, load(place) + sums[part]);
        }
    }
    for (; at < width; at += kLanes) {
        vfloat sum = {};
        for (int i = 0; i < run.count; ++i) {
            sum = sum + broadcast(run.factors[i]) * load_part(run.rows[i], at, width);
        }
        store(total_D + at, load(total_D + at) + sum);
    }
}

template <typename Element>
void mean_static_rows(const static_call& call, int64_t first_row, int64_t last_row, float* row_D) {
    const int64_t width = call.width;
    const auto table = static_cast<const Element*>(call.table);
    for (int64_t row = first_row; row < last_row; ++row) {
        for (int64_t at = 0; at < width; at += kLanes) store(row_D + at, vfloat{});
        token_run<Element> run;
        int64_t count = 0;
        for (int64_t token = call.cu_seqlens[row]; token < call.cu_seqlens[row + 1]; ++token) {
            const int32_t id = call.ids[token];
            if (id == call.left_out) continue;
            const int64_t place = call.mapping == nullptr ? id : call.mapping[id];
            run.rows[run.count] = table + place * call.row_width;
            run.factors[run.count] = call.weights == nullptr ? 1.0f : call.weights[id];
            prefetch_row(run.rows[run.count], width);
            ++count;
            if (++run.count == run.kMost) {
                add_run(run, width, row_D);
                run.count = 0;
            }
        }
        add_run(run, width, row_D);
        const vfloat divisor = broadcast(count == 0 ? 1.0f : static_cast<float>(count));
        row_sum squares;
        for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
            const vfloat x = load(row_D + at) / divisor;
            store(row_D + at, x);
            squares.parts[part] = squares.parts[part] + x * x;
        });
        vfloat length = broadcast(1.0f);
        if (call.normalized) {
            const float norm = __builtin_sqrtf(squares.total());
            length = broadcast(norm < 1e-12f ? 1e-12f : norm);
        }
        float* const output = call.output + row * width;
        for_each_vector(width, [&](int64_t at, int) EE_INLINED {
            store_part(output, at, width, load(row_D + at) / length);
        });
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
