// The steps of the online softmax; see attention_kernel.h for m, shift, l, alpha and p.
#pragma once

#include "cpu/simd/attention/attention_operands.h"
#include "cpu/simd/attention/block_statistics.h"

namespace encoder_engine {
namespace EE_ISA {

template <int Columns>
EE_INLINE void begin_queries(float* m_Q, float* shift_Q, float* l_Q) {
    for (int64_t i = 0; i < Columns * kLanes; i += kLanes) {
        store(m_Q + i, broadcast(-__builtin_inff()));
        store(shift_Q + i, vfloat{});
        store(l_Q + i, vfloat{});
    }
}

// Turns scores into p = 2^(score - shift), adds them to l and packs them into words.
template <typename Operands, int Columns, typename Statistics>
EE_TILE void exponentiate(const block_places& places, const Statistics& statistics, float* scores_KQ,
                          const float* shift_Q, float* l_Q) {
    const int64_t num_keys = places.num_keys;
    auto sums = statistics.sums_of(places);
    vfloat shift[Columns], sum[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        shift[c] = load(shift_Q + c * kLanes);
        sum[c] = load(l_Q + c * kLanes);
    }
    constexpr int kDepth = Operands::kDepth;
    const auto exponentiate_keys = [&](int64_t key, int count) EE_INLINED {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            vfloat weights[kDepth] = {};
#pragma GCC unroll 2
            for (int i = 0; i < count; ++i) {
                const vfloat score = load(scores_KQ + ((key + i) * Columns + c) * kLanes);
                weights[i] = exp2(score - shift[c]);
                sum[c] = sum[c] + weights[i];
                sums.add(key + i, c, score, shift[c], weights[i]);
            }
            store(scores_KQ + (key / kDepth * Columns + c) * kLanes, Operands::join(weights));
        }
    };
    int64_t key = 0;
    for (; key + kDepth <= num_keys; key += kDepth) exponentiate_keys(key, kDepth);
    if (key < num_keys) exponentiate_keys(key, 1);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(l_Q + c * kLanes, sum[c]);
    sums.keep();
}

// `exponentiate` for bfloat16, of scores that are not scaled yet.
template <typename Operands, int Columns>
EE_TILE void exponentiate_scaled(float* scores_KQ, int64_t num_keys, float scale, const float* shift_Q,
                          float* l_Q) {
    vfloat shift[Columns], sum[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        shift[c] = load(shift_Q + c * kLanes);
        sum[c] = load(l_Q + c * kLanes);
    }
    constexpr int64_t kRow = Columns * kLanes;
    for (int64_t key = 0; key < num_keys; key += 2) {
        const float* const from = scores_KQ + key * kRow;
        float* const to = scores_KQ + key / 2 * kRow;
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            const auto exponential = [&](const float* scores) EE_INLINED {
                return Operands::exp2(Operands::rounded(load(scores) * scale) - shift[c]);
            };
            vfloat weights[2] = {exponential(from + c * kLanes), {}};
            if (key + 1 < num_keys) weights[1] = exponential(from + kRow + c * kLanes);
            sum[c] = sum[c] + (weights[0] + weights[1]);
            store(to + c * kLanes, Operands::join(weights));
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(l_Q + c * kLanes, sum[c]);
}

// Moves `shift` to the maximum so far: alpha = 2^(old - new) rescales l here, and acc later. A query
// without a key so far has shift 0.
template <int Columns>
EE_TILE void rescale(const float* m_Q, float* shift_Q, float* l_Q, float* alpha_Q) {
#pragma GCC unroll 4
    for (int c = 0; c < Columns * kLanes; c += kLanes) {
        const vfloat largest = load(m_Q + c);
        const vfloat found = largest == -__builtin_inff() ? vfloat{} : largest;
        const vfloat alpha = exp2(smaller(load(shift_Q + c) - found, vfloat{}));
        store(shift_Q + c, found);
        store(alpha_Q + c, alpha);
        store(l_Q + c, load(l_Q + c) * alpha);
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
