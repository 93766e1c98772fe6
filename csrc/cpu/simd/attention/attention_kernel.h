// Attention of a block of queries of one head, with online softmax over blocks of 96 keys.
//
// How it works (FlashAttention, Dao et al. 2022, 2023): a piece packs the keys and values of its
// sequence once into a thread's scratch memory. For each block of queries and keys it computes the
// scores of a tile in registers and updates, for each query, the running maximum `m`, the sum of
// exponentials `l` and the output before division, `acc`: alpha = 2^(old m - new m) rescales l and acc,
// p = 2^(score - m) is added. Lanes run along queries while scores are computed, so that m and l need no
// step across lanes, and along the head's features while p * values is accumulated. `shift` is m with 0
// in place of -inf, because inf - inf is NaN. Every sequence is computed by itself, in one order.
#pragma once

#include "cpu/simd/attention/score_terms.h"
#include "cpu/simd/attention/softmax_steps.h"

namespace encoder_engine {
namespace EE_ISA {

// scores[k][q] = scale * keys[k] . queries[q] for a tile of keys; updates the maximum m[q].
template <typename Operands, int Rows, int Columns>
EE_TILE void score_tile(const float* keys_KD, int64_t key_width, const float* queries_DQ,
                        int64_t num_words, float scale, float* scores_KQ, int64_t scores_row,
                        float* m_Q) {
    vfloat sums[Rows][Columns] = {};
    multiply<Operands>(keys_KD, key_width, 1, queries_DQ, Columns * kLanes, num_words, sums);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        vfloat largest = load(m_Q + c * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const vfloat scaled = sums[r][c] * broadcast(scale);
            largest = larger(largest, scaled);
            store(scores_KQ + r * scores_row + c * kLanes, scaled);
        }
        store(m_Q + c * kLanes, largest);
    }
}

// acc[q] = alpha[q] * acc[q] + sum over k of p[k][q] * values[k] for a tile of queries, in `Columns`
// vectors of the head.
template <typename Operands, int Rows, int Columns>
EE_TILE void accumulate_tile(const float* p_KQ, int64_t weights_step, const float* values_KD,
                      int64_t width, int64_t num_words, const float* alpha_Q, float* acc_QD) {
    vfloat sums[Rows][Columns];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            sums[r][c] = broadcast(alpha_Q[r]) * load(acc_QD + r * width + c * kLanes);
        }
    }
    multiply<Operands>(p_KQ, 1, weights_step, values_KD, width, num_words, sums);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) store(acc_QD + r * width + c * kLanes, sums[r][c]);
    }
}

// Packed keys and values that a block of queries sees.
struct key_span {
    const float* keys_SD;
    const float* values_SD;  // by tiles: values_DS
    const float* places_S;   // within the sequence
    int64_t first, num_keys;  // `first`: among the keys that the piece packed
    bool in_order;           // places count up by one
    bool outside;            // only what lies beyond the window: the rest is in the other span
};

struct query_block {
    key_span spans[2];  // the keys around, and global tokens
    int64_t num_queries;
    const float* places_Q;
    bool in_order;
    float scale;
    bool has_terms;
    score_terms terms;
};

inline block_places places_of(const query_block& block, const key_span& span, int64_t key,
                              int64_t num_keys) {
    return {span.places_S + key, block.places_Q, num_keys, span.in_order && block.in_order, span.outside};
}

// Computes acc and l of one block of queries; the output is acc / l.
template <typename Operands, int Columns, typename Statistics>
void attend(const attention_layout<Operands::kDepth>& at, float* scratch, int64_t head_dim,
            const query_block& block, const Statistics& statistics) {
    constexpr int kDepth = Operands::kDepth;
    float* const p_KQ = scratch + at.p_KQ;
    float* const acc_QD = scratch + at.acc_QD;
    float* const m_Q = scratch + at.m_Q;
    float* const shift_Q = scratch + at.shift_Q;
    float* const l_Q = scratch + at.l_Q;
    float* const alpha_Q = scratch + at.alpha_Q;
    begin_queries<Columns>(m_Q, shift_Q, l_Q);
    statistics.begin();
    // Statistics are in float32, and are not taken of exponentials that are for bfloat16.
    const bool exact = kDepth == 1 || block.has_terms || Statistics::kAreThere;
    for (int64_t i = 0; i < block.num_queries * at.width; i += kLanes) store(acc_QD + i, vfloat{});
    const auto attend_block = [&](const key_span& span, int64_t key) {
        const int64_t num_keys = least(kKeyBlock, span.num_keys - key);
        const block_places places = places_of(block, span, key, num_keys);
        const float* const keys_KD = span.keys_SD + key * at.key_width;
        const float* const values_KD = span.values_SD + key / kDepth * at.width;
        // With terms the maximum is updated by apply_terms: score_tile writes its own to alpha's memory.
        float* const found_Q = block.has_terms ? alpha_Q : m_Q;
        for_each_tile<Columns>(num_keys, [&](int64_t first, auto rows) EE_INLINED {
            score_tile<Operands, decltype(rows)::value, Columns>(
                keys_KD + first * at.key_width, at.key_width, scratch + at.queries_DQ,
                (head_dim + kDepth - 1) / kDepth, block.scale,
                p_KQ + first * Columns * kLanes, Columns * kLanes, found_Q);
        });
        if (block.has_terms) {
            apply_terms<Columns>(block.terms, places, span.first + key, scratch + at.ramp, p_KQ, m_Q);
        }
        statistics.rescale(m_Q, shift_Q, l_Q);
        rescale<Columns>(m_Q, shift_Q, l_Q, alpha_Q);
        statistics.see(places, p_KQ, shift_Q);
        if constexpr (kDepth == 2) {
            if (!exact) exponentiate_scaled<Operands, Columns>(p_KQ, num_keys, 1.0f, shift_Q, l_Q);
        }
        if (exact) exponentiate<Operands, Columns>(places, statistics, p_KQ, shift_Q, l_Q);
        for (int64_t first = 0; first < at.width; first += kMostColumns * kLanes) {
            const int64_t across = least<int64_t>(kMostColumns, (at.width - first) / kLanes);
            with_number<kMostColumns>(static_cast<int>(across), [&](auto across_head) EE_INLINED {
                constexpr int kAcross = decltype(across_head)::value;
                for_each_tile<kAcross>(block.num_queries, [&](int64_t query, auto rows) EE_INLINED {
                    accumulate_tile<Operands, decltype(rows)::value, kAcross>(
                        p_KQ + query, Columns * kLanes, values_KD + first, at.width,
                        (num_keys + kDepth - 1) / kDepth, alpha_Q + query, acc_QD + query * at.width + first);
                });
            });
        }
    };
    for (const key_span& span : block.spans) {
        for (int64_t key = 0; key < span.num_keys; key += kKeyBlock) attend_block(span, key);
    }
}

// Writes acc / l of each query.
template <typename Element>
void write_out(const float* acc_QD, const float* l_Q, int64_t num_queries, int64_t head_dim,
               Element* output, int64_t output_stride) {
    for (int64_t query = 0; query < num_queries; ++query, output += output_stride) {
        const vfloat inverse = broadcast(1.0f / l_Q[query]);
        for (int64_t first = 0; first < head_dim; first += kLanes, acc_QD += kLanes) {
            store_part(output, first, head_dim, load(acc_QD) * inverse);
        }
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
