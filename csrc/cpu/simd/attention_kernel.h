// Attention of some queries of one head, by blocks of keys with a running softmax (Dao et al. 2022).
// The lanes run along queries while scores are computed, so that a query's largest score and sum
// need no step across lanes, and along the head while values are mixed.
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

// Where a piece's arrays begin in the scratch memory, in words. S: keys of the sequence, D: head
// size in whole vectors, Q: kQueryBlock, K: kKeyBlock; of queries and keys along D, and of weights and
// values along S and K, `depth` elements lie in a word.
struct attention_layout {
    int64_t width;      // of values and what is mixed of them
    int64_t key_width;  // of keys
    int64_t keys_SD, values_SD, queries_DQ, weights_KQ, mixed_QD;
    int64_t largest_Q, anchor_Q, sum_Q, shrink_Q, end;

    attention_layout(int64_t length, int64_t head_dim, int depth) {
        width = (head_dim + kLanes - 1) / kLanes * kLanes;
        key_width = ((head_dim + depth - 1) / depth + kLanes - 1) / kLanes * kLanes;
        keys_SD = 0;
        values_SD = keys_SD + length * key_width;
        queries_DQ = values_SD + (length + depth - 1) / depth * width;
        weights_KQ = queries_DQ + kQueryBlock * key_width;
        mixed_QD = weights_KQ + kKeyBlock * kQueryBlock;
        largest_Q = mixed_QD + kQueryBlock * width;
        anchor_Q = largest_Q + kQueryBlock;
        sum_Q = anchor_Q + kQueryBlock;
        shrink_Q = sum_Q + kQueryBlock;
        end = shrink_Q + kQueryBlock;
    }
};

template <typename Operands>
size_t attention_scratch_bytes(const attention_call& call, int64_t length) {
    const attention_layout at(length, call.head_dim, Operands::kDepth);
    return static_cast<size_t>(at.end) * sizeof(float);
}

// Lays rows side by side, each in whole vectors.
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

// Lays the words [first, first + kLanes) of up to kLanes rows out as columns, zeros where there is no
// row.
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

// Lays up to kQueryBlock rows out as columns, `columns` vectors wide.
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

// scores[k][q] = scale * keys[k] . queries[q] for a tile of keys; raises `largest` to theirs.
template <typename Operands, int Rows, int Columns>
EE_TILE void score_tile(const float* keys_KD, int64_t key_width, const float* queries_DQ,
                        int64_t num_words, float scale, float* scores_KQ, float* largest_Q) {
    vfloat sums[Rows][Columns] = {};
    multiply<Operands>(keys_KD, key_width, 1, queries_DQ, Columns * kLanes, num_words, sums);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        vfloat largest = load(largest_Q + c * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const vfloat scaled = sums[r][c] * broadcast(scale);
            largest = larger(largest, scaled);
            store(scores_KQ + (r * Columns + c) * kLanes, scaled);
        }
        store(largest_Q + c * kLanes, largest);
    }
}

// What a key's place relative to a query's does to their score.
struct place_terms {
    float slope;            // times the distance, taken off
    float behind, ahead;    // the farthest places seen
};

// Changes scores of keys whose first lies `distance` places after the first query, and finds the
// largest ones anew.
template <int Columns>
EE_TILE void apply_terms(const place_terms& terms, float distance, float* scores_KQ,
                         int64_t num_keys, float* largest_Q) {
    float ramp[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) ramp[lane] = static_cast<float>(lane);
    const vfloat unseen = broadcast(-__builtin_inff());
    vfloat largest[Columns], place[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        largest[c] = load(largest_Q + c * kLanes);
        place[c] = broadcast(distance - static_cast<float>(c * kLanes)) - load(ramp);
    }
    for (int64_t key = 0; key < num_keys; ++key) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c, scores_KQ += kLanes) {
            vfloat score = load(scores_KQ) - larger(place[c], -place[c]) * terms.slope;
            score = place[c] < -terms.behind ? unseen : score;
            score = place[c] > terms.ahead ? unseen : score;
            largest[c] = larger(largest[c], score);
            place[c] = place[c] + 1.0f;
            store(scores_KQ, score);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(largest_Q + c * kLanes, largest[c]);
}

// Turns scores into weights 2^(score - anchor), adds them up and joins them to words.
template <typename Operands, int Columns>
EE_TILE void weigh(float* scores_KQ, int64_t num_keys, const float* anchor_Q, float* sum_Q) {
    vfloat anchor[Columns], sum[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        anchor[c] = load(anchor_Q + c * kLanes);
        sum[c] = load(sum_Q + c * kLanes);
    }
    constexpr int kDepth = Operands::kDepth;
    const auto weigh_keys = [&](int64_t key, int count) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            vfloat weights[kDepth] = {};
#pragma GCC unroll 2
            for (int i = 0; i < count; ++i) {
                weights[i] = exp2(load(scores_KQ + ((key + i) * Columns + c) * kLanes) - anchor[c]);
                sum[c] = sum[c] + weights[i];
            }
            store(scores_KQ + (key / kDepth * Columns + c) * kLanes, Operands::join(weights));
        }
    };
    int64_t key = 0;
    for (; key + kDepth <= num_keys; key += kDepth) weigh_keys(key, kDepth);
    if (key < num_keys) weigh_keys(key, 1);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(sum_Q + c * kLanes, sum[c]);
}

// mixed[q] = shrink[q] * mixed[q] + sum over k of weights[k][q] * values[k] for a tile of queries, in
// `Columns` vectors of the head.
template <typename Operands, int Rows, int Columns>
EE_TILE void mix_tile(const float* weights_KQ, int64_t weights_step, const float* values_KD,
                      int64_t width, int64_t num_words, const float* shrink_Q, float* mixed_QD) {
    vfloat sums[Rows][Columns];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            sums[r][c] = broadcast(shrink_Q[r]) * load(mixed_QD + r * width + c * kLanes);
        }
    }
    multiply<Operands>(weights_KQ, 1, weights_step, values_KD, width, num_words, sums);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) store(mixed_QD + r * width + c * kLanes, sums[r][c]);
    }
}

// Moves the anchors to the largest scores so far: the sums and what is mixed shrink by 2^(old - new).
// Nothing seen yet leaves them at 0.
template <int Columns>
EE_TILE void anchor(const float* largest_Q, float* anchor_Q, float* sum_Q, float* shrink_Q) {
#pragma GCC unroll 4
    for (int c = 0; c < Columns * kLanes; c += kLanes) {
        const vfloat largest = load(largest_Q + c);
        const vfloat found = largest == -__builtin_inff() ? vfloat{} : largest;
        const vfloat shrink = exp2(smaller(load(anchor_Q + c) - found, vfloat{}));
        store(anchor_Q + c, found);
        store(shrink_Q + c, shrink);
        store(sum_Q + c, load(sum_Q + c) * shrink);
    }
}

// A block of queries, and the keys it sees: where their rows are laid out, and which they are.
struct query_block {
    const float* keys_SD;
    const float* values_SD;  // by tiles: values_DS
    int64_t num_queries, num_keys;
    float distance;  // places from the first query to the first key
    float scale;
    bool has_terms;
    place_terms terms;
};

// One block of queries; leaves what is to be divided by the sums in `mixed`.
template <typename Operands, int Columns>
void attend(const attention_layout& at, float* scratch, int64_t head_dim, const query_block& block) {
    constexpr int kDepth = Operands::kDepth;
    float* const weights_KQ = scratch + at.weights_KQ;
    float* const mixed_QD = scratch + at.mixed_QD;
    float* const largest_Q = scratch + at.largest_Q;
    float* const anchor_Q = scratch + at.anchor_Q;
    float* const sum_Q = scratch + at.sum_Q;
    float* const shrink_Q = scratch + at.shrink_Q;
    for (int64_t i = 0; i < Columns * kLanes; i += kLanes) {
        store(largest_Q + i, broadcast(-__builtin_inff()));
        store(anchor_Q + i, vfloat{});
        store(sum_Q + i, vfloat{});
    }
    for (int64_t i = 0; i < block.num_queries * at.width; i += kLanes) store(mixed_QD + i, vfloat{});
    for (int64_t key = 0; key < block.num_keys; key += kKeyBlock) {
        const int64_t num_keys = least(kKeyBlock, block.num_keys - key);
        const float* const keys_KD = block.keys_SD + key * at.key_width;
        const float* const values_KD = block.values_SD + key / kDepth * at.width;
        // With terms the largest are found afterwards.
        float* const found_Q = block.has_terms ? shrink_Q : largest_Q;
        for_each_tile<Columns>(num_keys, [&](int64_t first, auto rows) {
            score_tile<Operands, decltype(rows)::value, Columns>(
                keys_KD + first * at.key_width, at.key_width, scratch + at.queries_DQ,
                (head_dim + kDepth - 1) / kDepth, block.scale,
                weights_KQ + first * Columns * kLanes, found_Q);
        });
        if (block.has_terms) {
            apply_terms<Columns>(block.terms, block.distance + static_cast<float>(key), weights_KQ,
                                 num_keys, largest_Q);
        }
        anchor<Columns>(largest_Q, anchor_Q, sum_Q, shrink_Q);
        weigh<Operands, Columns>(weights_KQ, num_keys, anchor_Q, sum_Q);
        for (int64_t first = 0; first < at.width; first += kMostColumns * kLanes) {
            const int64_t across = least<int64_t>(kMostColumns, (at.width - first) / kLanes);
            with_number<kMostColumns>(static_cast<int>(across), [&](auto across_head) {
                constexpr int kAcross = decltype(across_head)::value;
                for_each_tile<kAcross>(block.num_queries, [&](int64_t query, auto rows) {
                    mix_tile<Operands, decltype(rows)::value, kAcross>(
                        weights_KQ + query, Columns * kLanes, values_KD + first, at.width,
                        (num_keys + kDepth - 1) / kDepth, shrink_Q + query, mixed_QD + query * at.width + first);
                });
            });
        }
    }
}

// Divides each query's mixed values by its weights' sum.
template <typename Element>
void write_out(const float* mixed_QD, const float* sum_Q, int64_t num_queries, int64_t head_dim,
               Element* output, int64_t output_stride) {
    for (int64_t query = 0; query < num_queries; ++query, output += output_stride) {
        const vfloat share = broadcast(1.0f / sum_Q[query]);
        for (int64_t first = 0; first < head_dim; first += kLanes, mixed_QD += kLanes) {
            store_part(output, first, head_dim, load(mixed_QD) * share);
        }
    }
}

template <typename Element>
const Element* head_of(const head_rows& rows, int64_t row, int64_t head) {
    return static_cast<const Element*>(rows.data) + row * rows.token_stride + head * rows.head_stride;
}

// The keys, of a sequence, that some of its queries see.
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
        write_out(scratch + at.mixed_QD, scratch + at.sum_Q, count, call.head_dim,
                  static_cast<Element*>(call.output) + row * output_stride + piece.head * call.head_dim,
                  output_stride);
    }
}

template <typename Operands>
constexpr attention_kernel kAttention = {kQueryBlock, attention_scratch_bytes<Operands>,
                                         attend_piece<Operands>};

}  // namespace EE_ISA
}  // namespace encoder_engine
