// The terms of a score besides the product of query and key: all depend on their distance.
#pragma once

#include "cpu/simd/attention/block_places.h"
#include "cpu/simd/attention/distance_terms.h"

namespace encoder_engine {
namespace EE_ISA {

inline score_terms terms_of(const attention_call& call, int64_t head) {
    const float all = __builtin_inff();
    const float reach = call.window < 0 ? all : static_cast<float>(call.window);
    score_terms terms{};
    terms.slope = call.alibi_slopes == nullptr ? 0.0f : call.alibi_slopes[head] * kLog2E;
    terms.left = reach;
    terms.right = call.causal ? 0.0f : reach;
    if (call.relative_bias != nullptr) {
        terms.bias_R = call.relative_bias + head * (2 * call.bias_reach + 1);
        terms.bias_reach = call.bias_reach;
    }
    return terms;
}

template <int Columns>
EE_TILE void add_bias(const score_terms& terms, const block_places& places, float* ramp,
                      float* scores_KQ) {
    const by_distance<float, Columns> bias(terms.bias_R, terms.bias_reach, places, ramp);
    for (int64_t key = 0; key < places.num_keys; ++key) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c, scores_KQ += kLanes) {
            store(scores_KQ, load(scores_KQ) + bias.template load_lanes<vfloat>(key, c) * kLog2E);
        }
    }
}

// Subtracts slopes, hides what is not seen, and updates the maximum m.
template <int Columns>
EE_TILE void finish_scores(const score_terms& terms, const block_places& places, float* scores_KQ,
                           float* m_Q) {
    const vfloat unseen = broadcast(-__builtin_inff());
    const vint turned = vint{} - (places.outside ? 1 : 0);
    vfloat largest[Columns], query[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        largest[c] = load(m_Q + c * kLanes);
        query[c] = load(places.queries_Q + c * kLanes);
    }
    for (int64_t key = 0; key < places.num_keys; ++key) {
        const vfloat place = broadcast(places.keys_K[key]);
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c, scores_KQ += kLanes) {
            const vfloat distance = place - query[c];
            vfloat score = load(scores_KQ) - larger(distance, -distance) * terms.slope;
            const vint hidden = ((distance < -terms.left) | (distance > terms.right)) ^ turned;
            score = hidden != 0 ? unseen : score;
            largest[c] = larger(largest[c], score);
            store(scores_KQ, score);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(m_Q + c * kLanes, largest[c]);
}

// Applies all terms to a block's scores and updates the maximum m.
template <int Columns>
void apply_terms(const score_terms& terms, const block_places& places, int64_t first_key, float* ramp,
                 float* scores_KQ, float* m_Q) {
    if (terms.bias_R != nullptr) add_bias<Columns>(terms, places, ramp, scores_KQ);
    if (terms.entries_R != nullptr) {
        add_distances<Columns>(terms, places, first_key, ramp, scores_KQ);
    }
    finish_scores<Columns>(terms, places, scores_KQ, m_Q);
}

}  // namespace EE_ISA
}  // namespace encoder_engine
