// The products of queries and keys with vectors that stand for distances (DeBERTa).
#pragma once

#include "cpu/simd/attention/block_places.h"

namespace encoder_engine {
namespace EE_ISA {

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
//
// A row of products holds those of one query or key with all vectors. Entries mostly rise by one from
// query to query and fall by one from key to key: then a key's products with a vector of queries lie
// side by side, and a query's with a vector of keys, which a transposition turns to lanes of queries.
// Gathering, which takes four times as long, is for entries that several distances share.
template <int Columns>
EE_TILE void add_distances(const score_terms& terms, const block_places& places, int64_t first_key,
                           float* ramp, float* scores_KQ) {
    const by_distance<int32_t, Columns> entries(terms.entries_R, terms.entries_reach, places, ramp);
    const int32_t row = static_cast<int32_t>(terms.row), last = terms.last_entry - terms.first_entry;
    const float* const of_keys = terms.of_keys_SN + first_key * row;
    int32_t first_in_rows[kLanes];
    for (int32_t lane = 0; lane < kLanes; ++lane) first_in_rows[lane] = lane * row;
    const vint rows = load<vint>(first_in_rows);
    const auto gather_key = [&](int64_t key, int c) EE_INLINED {
        const vint entry =
            clamp(entries.template load_lanes<vint>(key, c) - terms.first_entry, 0, last);
        float* const to = scores_KQ + (key * Columns + c) * kLanes;
        vfloat score = load(to);
        if (terms.of_queries_QN != nullptr) {
            score = score + gather(terms.of_queries_QN + c * kLanes * row, rows + entry);
        }
        if (terms.of_keys_SN != nullptr) score = score + gather(of_keys + key * row, entry);
        store(to, score);
    };
    int64_t key = 0;
    for (; places.in_order && key + kLanes <= places.num_keys; key += kLanes) {
        for (int c = 0; c < Columns; ++c) {
            // Of the last key, which has the lowest.
            const int32_t* const own = entries.ramp + places.num_keys - key - kLanes + c * kLanes;
            const int32_t entry = own[0] - terms.first_entry;
            bool is_run = entry >= 0 && entry + 2 * kLanes - 2 <= last;
            for (int32_t i = 1; i < 2 * kLanes - 1; ++i) is_run &= own[i] == own[0] + i;
            if (!is_run) {
                for (int i = 0; i < kLanes; ++i) gather_key(key + i, c);
                continue;
            }
            vfloat square[kLanes] = {};
            if (terms.of_queries_QN != nullptr) {
                const float* const products = terms.of_queries_QN + c * kLanes * row + entry;
#pragma GCC unroll 16
                for (int lane = 0; lane < kLanes; ++lane) square[lane] = load(products + lane * (row + 1));
                transpose(square);
            }
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                float* const to = scores_KQ + ((key + kLanes - 1 - i) * Columns + c) * kLanes;
                vfloat score = load(to) + square[i];
                if (terms.of_keys_SN != nullptr) {
                    score = score + load(of_keys + (key + kLanes - 1 - i) * row + entry + i);
                }
                store(to, score);
            }
        }
    }
    for (; key < places.num_keys; ++key) {
        for (int c = 0; c < Columns; ++c) gather_key(key, c);
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
