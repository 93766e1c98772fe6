// The terms of a score besides the product of query and key: all depend on their distance.
//
// How it works: lanes run along queries, so that the distances of one key and a vector of queries fall
// by one from lane to lane. Where queries and keys are in order, a table's values are written once for
// each block in falling order (`ramp`), and each key loads from it at another offset.
#pragma once

#include "cpu/simd/attention_layout.h"

namespace encoder_engine {
namespace EE_ISA {

constexpr float kLog2E = 1.44269504f;

struct score_terms {
    float slope;        // ALiBi: times the distance, subtracted
    float left, right;  // the largest distances seen on either side
    const float* bias_R;  // of the head, by distance; null: none
    int64_t bias_reach;
    const int32_t* entries_R;  // of the distance vectors; null: none
    int64_t entries_reach;
    int32_t first_entry, last_entry;  // those whose products are there
    const float* of_queries_NQ;       // products of queries and vectors; null: none
    const float* of_keys_NSQ;         // products of keys and vectors, in panels of Q; null: none
    int64_t panel;                    // words of such a panel

    bool are_there() const {
        return slope != 0.0f || left < __builtin_inff() || right < __builtin_inff() ||
               bias_R != nullptr || entries_R != nullptr;
    }
};

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

// The places of a block's keys and queries in their sequence.
struct block_places {
    const float* keys_K;
    const float* queries_Q;
    int64_t num_keys;
    bool in_order;  // keys and queries count up by one
    bool outside;   // only keys beyond the window count: the others are elsewhere
};

// A value for each distance of a block, out of a table for the distances -reach to reach, which stands
// for all beyond too.
template <typename Value, int Columns>
struct by_distance {
    const Value* const middle;
    const float reach;
    const block_places& places;
    Value* const ramp;

    by_distance(const Value* table_R, int64_t table_reach, const block_places& block, float* memory)
        : middle(table_R + table_reach),
          reach(static_cast<float>(table_reach)),
          places(block),
          ramp(reinterpret_cast<Value*>(memory)) {
        if (!places.in_order) return;
        const float first = places.keys_K[0] - places.queries_Q[0];
        const int64_t count = places.num_keys + Columns * kLanes;
        for (int64_t i = 0; i < count; ++i) {
            ramp[i] = value(first + static_cast<float>(places.num_keys - 1 - i));
        }
    }

    Value value(float distance) const {
        const float least_distance = distance < -reach ? -reach : distance;
        return middle[static_cast<int64_t>(least_distance > reach ? reach : least_distance)];
    }

    template <typename Vector>
    EE_INLINE Vector load_lanes(int64_t key, int column) const {
        if (places.in_order) return load<Vector>(ramp + places.num_keys - 1 - key + column * kLanes);
        Value found[kLanes];
        for (int lane = 0; lane < kLanes; ++lane) {
            found[lane] = value(places.keys_K[key] - places.queries_Q[column * kLanes + lane]);
        }
        return load<Vector>(found);
    }
};

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

EE_INLINE vfloat gather(const float* from, vint index) {
#if defined(__AVX512F__)
    return reinterpret_cast<vfloat>(_mm512_mask_i32gather_ps(
        __m512{}, 0xffff, reinterpret_cast<__m512i>(index), from, sizeof(float)));
#elif defined(__AVX2__)
    return reinterpret_cast<vfloat>(
        _mm256_i32gather_ps(from, reinterpret_cast<__m256i>(index), sizeof(float)));
#else
    float found[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) found[lane] = from[index[lane]];
    return load(found);
#endif
}

EE_INLINE vint clamp(vint x, int32_t low, int32_t high) {
    const vint least_x = x < low ? low - vint{} : x;
    return least_x > high ? high - vint{} : least_x;
}

// Adds the products with distance vectors; `first_key`: of the block, among the keys that are packed.
template <int Columns>
EE_TILE void add_distances(const score_terms& terms, const block_places& places, int64_t first_key,
                           float* ramp, float* scores_KQ) {
    const by_distance<int32_t, Columns> entries(terms.entries_R, terms.entries_reach, places, ramp);
    int32_t numbers[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = lane;
    const vint lane_number = load<vint>(numbers);
    constexpr int kShift = __builtin_ctz(static_cast<unsigned>(kQueryBlock));
    const int32_t panel = static_cast<int32_t>(terms.panel);
    const float* of_key = terms.of_keys_NSQ + first_key * kQueryBlock;
    for (int64_t key = 0; key < places.num_keys; ++key, of_key += kQueryBlock) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c, scores_KQ += kLanes) {
            const vint entry = clamp(entries.template load_lanes<vint>(key, c), terms.first_entry,
                                     terms.last_entry) -
                               terms.first_entry;
            vfloat score = load(scores_KQ);
            if (terms.of_queries_NQ != nullptr) {
                score = score + gather(terms.of_queries_NQ + c * kLanes,
                                       entry * (Columns * kLanes) + lane_number);
            }
            if (terms.of_keys_NSQ != nullptr) {
                score = score + gather(of_key, (entry >> kShift) * panel +
                                                   (entry & static_cast<int32_t>(kQueryBlock - 1)));
            }
            store(scores_KQ, score);
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
