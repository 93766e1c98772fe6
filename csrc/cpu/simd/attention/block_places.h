// The places of a block's keys and queries, and tables by their distance.
//
// How it works: lanes run along queries, so that the distances of one key and a vector of queries fall
// by one from lane to lane. Where queries and keys are in order, a table's values are written once for
// each block in falling order (`ramp`), and each key loads from it at another offset.
#pragma once

#include "cpu/simd/attention/attention_layout.h"

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
    const float* of_queries_QN;       // products of queries and vectors; null: none
    const float* of_keys_SN;          // products of keys and vectors; null: none
    int64_t row;                      // words of a row of either

    bool are_there() const {
        return slope != 0.0f || left < __builtin_inff() || right < __builtin_inff() ||
               bias_R != nullptr || entries_R != nullptr;
    }
};

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

}  // namespace EE_ISA
}  // namespace encoder_engine
