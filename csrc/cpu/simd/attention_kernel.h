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

#include "cpu/simd/attention_operands.h"
#include "cpu/simd/element_vector.h"
#include "cpu/kernels.h"
#include "cpu/simd/tile.h"

namespace encoder_engine {
namespace EE_ISA {

constexpr int64_t kQueryBlock = kMostColumns * kLanes;
constexpr int64_t kKeyBlock = 96;
constexpr float kLog2E = 1.44269504f;

// Offsets of a piece's arrays in the scratch memory, in words. S: keys of the sequence, D: head size in
// whole vectors, Q: kQueryBlock, K: kKeyBlock. A word holds `depth` elements: of queries and keys along
// D, of p and values along S and K.
struct attention_layout {
    int64_t width;      // of values and acc
    int64_t key_width;  // of keys
    int64_t keys_SD, values_SD, queries_DQ, p_KQ, acc_QD;
    int64_t m_Q, shift_Q, l_Q, alpha_Q, end;

    attention_layout(int64_t length, int64_t head_dim, int depth) {
        width = (head_dim + kLanes - 1) / kLanes * kLanes;
        key_width = ((head_dim + depth - 1) / depth + kLanes - 1) / kLanes * kLanes;
        keys_SD = 0;
        values_SD = keys_SD + length * key_width;
        queries_DQ = values_SD + (length + depth - 1) / depth * width;
        p_KQ = queries_DQ + kQueryBlock * key_width;
        acc_QD = p_KQ + kKeyBlock * kQueryBlock;
        m_Q = acc_QD + kQueryBlock * width;
        shift_Q = m_Q + kQueryBlock;
        l_Q = shift_Q + kQueryBlock;
        alpha_Q = l_Q + kQueryBlock;
        end = alpha_Q + kQueryBlock;
    }
};

template <typename Operands>
size_t attention_scratch_bytes(const attention_call& call, int64_t length) {
    const attention_layout at(length, call.head_dim, Operands::kDepth);
    return static_cast<size_t>(at.end) * sizeof(float);
}

// Packs rows one after another, each padded to whole vectors.
template <typename Operands>
void lay_out_keys(const typename Operands::Element* rows, int64_t stride, int64_t count,
                  int64_t head_dim, float* to) {
    for (int64_t row = 0; row < count; ++row, rows += stride) {
        for (int64_t first = 0; first * Operands::kDepth < head_dim; first += kLanes, to += kLanes) {
            store(to, Operands::load_words(rows, first, head_dim));
        }
    }
}

template <typename Operands>
void lay_out_values(const typename Operands::Element* rows, int64_t stride, int64_t count,
                    int64_t head_dim, float* to) {
    for (int64_t row = 0; row < count; row += Operands::kDepth, rows += Operands::kDepth * stride) {
        for (int64_t first = 0; first < head_dim; first += kLanes, to += kLanes) {
            store(to, Operands::load_across(rows, stride, count - row, first, head_dim));
        }
    }
}

// Transposes the words [first, first + kLanes) of up to kLanes rows; zeros where there is no row.
template <typename Operands>
EE_TILE void lay_out_square(const typename Operands::Element* rows, int64_t stride, int64_t count,
                            int64_t first, int64_t head_dim, float* to, int64_t to_stride) {
    vfloat square[kLanes];
    for (int64_t row = 0; row < kLanes; ++row) {
        square[row] = row < count ? Operands::load_words(rows + row * stride, first, head_dim) : vfloat{};
    }
    transpose(square);
#pragma GCC unroll 16
    for (int row = 0; row < kLanes; ++row) store(to + row * to_stride, square[row]);
}

// Transposes up to kQueryBlock rows, into `columns` vectors.
template <typename Operands>
void lay_out_queries(const typename Operands::Element* rows, int64_t stride, int64_t count,
                     int64_t head_dim, int columns, float* to_DQ) {
    for (int column = 0; column < columns; ++column) {
        const int64_t row = column * kLanes;
        for (int64_t first = 0; first * Operands::kDepth < head_dim; first += kLanes) {
            lay_out_square<Operands>(rows + row * stride, stride, count - row, first, head_dim,
                                     to_DQ + first * columns * kLanes + row, columns * kLanes);
        }
    }
}

// scores[k][q] = scale * keys[k] . queries[q] for a tile of keys; updates the maximum m[q].
template <typename Operands, int Rows, int Columns>
EE_TILE void score_tile(const float* keys_KD, int64_t key_width, const float* queries_DQ,
                        int64_t num_words, float scale, float* scores_KQ, float* m_Q) {
    vfloat sums[Rows][Columns] = {};
    multiply<Operands>(keys_KD, key_width, 1, queries_DQ, Columns * kLanes, num_words, sums);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        vfloat largest = load(m_Q + c * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const vfloat scaled = sums[r][c] * broadcast(scale);
            largest = larger(largest, scaled);
            store(scores_KQ + (r * Columns + c) * kLanes, scaled);
        }
        store(m_Q + c * kLanes, largest);
    }
}

// The terms of a score that depend on the distance of key and query.
struct place_terms {
    float slope;            // ALiBi: times the distance, subtracted
    float left, right;      // the largest distances seen on either side
};

// Applies the terms to scores of keys, the first of which is `distance` places after the first query,
// and updates the maximum m.
template <int Columns>
EE_TILE void apply_terms(const place_terms& terms, float distance, float* scores_KQ,
                         int64_t num_keys, float* m_Q) {
    float ramp[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) ramp[lane] = static_cast<float>(lane);
    const vfloat unseen = broadcast(-__builtin_inff());
    vfloat largest[Columns], place[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        largest[c] = load(m_Q + c * kLanes);
        place[c] = broadcast(distance - static_cast<float>(c * kLanes)) - load(ramp);
    }
    for (int64_t key = 0; key < num_keys; ++key) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c, scores_KQ += kLanes) {
            vfloat score = load(scores_KQ) - larger(place[c], -place[c]) * terms.slope;
            score = place[c] < -terms.left ? unseen : score;
            score = place[c] > terms.right ? unseen : score;
            largest[c] = larger(largest[c], score);
            place[c] = place[c] + 1.0f;
            store(scores_KQ, score);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(m_Q + c * kLanes, largest[c]);
}

// Turns scores into p = 2^(score - shift), adds them to l and packs them into words.
template <typename Operands, int Columns>
EE_TILE void exponentiate(float* scores_KQ, int64_t num_keys, const float* shift_Q, float* l_Q) {
    vfloat shift[Columns], sum[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        shift[c] = load(shift_Q + c * kLanes);
        sum[c] = load(l_Q + c * kLanes);
    }
    constexpr int kDepth = Operands::kDepth;
    const auto exponentiate_keys = [&](int64_t key, int count) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            vfloat weights[kDepth] = {};
#pragma GCC unroll 2
            for (int i = 0; i < count; ++i) {
                weights[i] = exp2(load(scores_KQ + ((key + i) * Columns + c) * kLanes) - shift[c]);
                sum[c] = sum[c] + weights[i];
            }
            store(scores_KQ + (key / kDepth * Columns + c) * kLanes, Operands::join(weights));
        }
    };
    int64_t key = 0;
    for (; key + kDepth <= num_keys; key += kDepth) exponentiate_keys(key, kDepth);
    if (key < num_keys) exponentiate_keys(key, 1);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(l_Q + c * kLanes, sum[c]);
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

// A block of queries, and the packed rows of the keys it sees.
struct query_block {
    const float* keys_SD;
    const float* values_SD;  // by tiles: values_DS
    int64_t num_queries, num_keys;
    float distance;  // places from the first query to the first key
    float scale;
    bool has_terms;
    place_terms terms;
};

// Computes acc and l of one block of queries; the output is acc / l.
template <typename Operands, int Columns>
void attend(const attention_layout& at, float* scratch, int64_t head_dim, const query_block& block) {
    constexpr int kDepth = Operands::kDepth;
    float* const p_KQ = scratch + at.p_KQ;
    float* const acc_QD = scratch + at.acc_QD;
    float* const m_Q = scratch + at.m_Q;
    float* const shift_Q = scratch + at.shift_Q;
    float* const l_Q = scratch + at.l_Q;
    float* const alpha_Q = scratch + at.alpha_Q;
    for (int64_t i = 0; i < Columns * kLanes; i += kLanes) {
        store(m_Q + i, broadcast(-__builtin_inff()));
        store(shift_Q + i, vfloat{});
        store(l_Q + i, vfloat{});
    }
    for (int64_t i = 0; i < block.num_queries * at.width; i += kLanes) store(acc_QD + i, vfloat{});
    for (int64_t key = 0; key < block.num_keys; key += kKeyBlock) {
        const int64_t num_keys = least(kKeyBlock, block.num_keys - key);
        const float* const keys_KD = block.keys_SD + key * at.key_width;
        const float* const values_KD = block.values_SD + key / kDepth * at.width;
        // With terms the maximum is updated by apply_terms: score_tile writes its own to alpha's memory.
        float* const found_Q = block.has_terms ? alpha_Q : m_Q;
        for_each_tile<Columns>(num_keys, [&](int64_t first, auto rows) {
            score_tile<Operands, decltype(rows)::value, Columns>(
                keys_KD + first * at.key_width, at.key_width, scratch + at.queries_DQ,
                (head_dim + kDepth - 1) / kDepth, block.scale,
                p_KQ + first * Columns * kLanes, found_Q);
        });
        if (block.has_terms) {
            apply_terms<Columns>(block.terms, block.distance + static_cast<float>(key), p_KQ,
                                 num_keys, m_Q);
        }
        rescale<Columns>(m_Q, shift_Q, l_Q, alpha_Q);
        exponentiate<Operands, Columns>(p_KQ, num_keys, shift_Q, l_Q);
        for (int64_t first = 0; first < at.width; first += kMostColumns * kLanes) {
            const int64_t across = least<int64_t>(kMostColumns, (at.width - first) / kLanes);
            with_number<kMostColumns>(static_cast<int>(across), [&](auto across_head) {
                constexpr int kAcross = decltype(across_head)::value;
                for_each_tile<kAcross>(block.num_queries, [&](int64_t query, auto rows) {
                    accumulate_tile<Operands, decltype(rows)::value, kAcross>(
                        p_KQ + query, Columns * kLanes, values_KD + first, at.width,
                        (num_keys + kDepth - 1) / kDepth, alpha_Q + query, acc_QD + query * at.width + first);
                });
            });
        }
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

template <typename Element>
const Element* head_of(const head_rows& rows, int64_t row, int64_t head) {
    return static_cast<const Element*>(rows.data) + row * rows.token_stride + head * rows.head_stride;
}

// The keys of a sequence that a range of its queries sees.
struct key_range {
    int64_t first, last;

    key_range(const attention_call& call, int64_t length, int64_t first_query, int64_t last_query) {
        first = call.window < 0 || first_query < call.window ? 0 : first_query - call.window;
        first -= first % 2;  // two values may share a word
        last = call.causal ? last_query : length;
        if (call.window >= 0) last = least(last, last_query + least(call.window, length));
    }
};

inline place_terms terms_of(const attention_call& call, int64_t head) {
    const float all = __builtin_inff();
    const float reach = call.window < 0 ? all : static_cast<float>(call.window);
    return {call.alibi_slopes == nullptr ? 0.0f : call.alibi_slopes[head] * kLog2E, reach,
            call.causal ? 0.0f : reach};
}

inline query_block query_block_of(const attention_call& call, int64_t head, int64_t first_query,
                                  int64_t num_queries, const key_range& keys, const float* keys_SD,
                                  const float* values_SD) {
    return {keys_SD,
            values_SD,
            num_queries,
            keys.last - keys.first,
            static_cast<float>(keys.first - first_query),
            call.scale * kLog2E,
            call.window >= 0 || call.causal || call.alibi_slopes != nullptr,
            terms_of(call, head)};
}

template <typename Operands>
void attend_piece(const attention_call& call, const attention_piece& piece, void* memory) {
    float* const scratch = static_cast<float*>(memory);
    using Element = typename Operands::Element;
    const attention_layout at(piece.length, call.head_dim, Operands::kDepth);
    const key_range seen(call, piece.length, piece.first_query, piece.last_query);
    const int64_t key_head = piece.head * call.num_key_heads / call.num_heads;
    const int64_t key_row = piece.first_row + seen.first;
    lay_out_keys<Operands>(head_of<Element>(call.key, key_row, key_head), call.key.token_stride,
            seen.last - seen.first, call.head_dim, scratch + at.keys_SD);
    lay_out_values<Operands>(head_of<Element>(call.value, key_row, key_head), call.value.token_stride,
            seen.last - seen.first, call.head_dim, scratch + at.values_SD);
    const int64_t output_stride = call.num_heads * call.head_dim;
    for (int64_t query = piece.first_query; query < piece.last_query; query += kQueryBlock) {
        const int64_t count = least(kQueryBlock, piece.last_query - query);
        const int64_t row = piece.first_row + query;
        const key_range keys(call, piece.length, query, query + count);
        const int64_t skipped = keys.first - seen.first;
        const query_block block =
            query_block_of(call, piece.head, query, count, keys,
                           scratch + at.keys_SD + skipped * at.key_width,
                           scratch + at.values_SD + skipped / Operands::kDepth * at.width);
        with_number<kMostColumns>(static_cast<int>((count + kLanes - 1) / kLanes), [&](auto columns) {
            constexpr int kColumns = decltype(columns)::value;
            lay_out_queries<Operands>(head_of<Element>(call.query, row, piece.head),
                               call.query.token_stride, count, call.head_dim, kColumns,
                               scratch + at.queries_DQ);
            attend<Operands, kColumns>(at, scratch, call.head_dim, block);
        });
        write_out(scratch + at.acc_QD, scratch + at.l_Q, count, call.head_dim,
                  static_cast<Element*>(call.output) + row * output_stride + piece.head * call.head_dim,
                  output_stride);
    }
}

template <typename Operands>
constexpr attention_kernel kAttention = {kQueryBlock, attention_scratch_bytes<Operands>,
                                         attend_piece<Operands>};

}  // namespace EE_ISA
}  // namespace encoder_engine
