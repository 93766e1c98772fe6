// Attention of bfloat16 by AMX tiles, by blocks of 256 keys; see attention_kernel.h for m, l, acc, p.
//
// How it works: scores [keys, queries] and acc [features, queries] both have queries along the lanes.
// The exponentials of a pair of keys then fill one word of bfloat16, which is the right operand of the
// second product, values^T p, without a transposition. acc is rescaled by alpha before each block.
#pragma once

#include "cpu/simd/amx_tiles.h"
#include "cpu/simd/attention/attention_piece.h"

namespace encoder_engine {
namespace EE_ISA {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileWords = 16;      // of a row
constexpr int64_t kTileElements = 32;   // of a row
constexpr int64_t kTileKeyBlock = kMostKeyBlock;  // a multiple of kTileElements

// A word holds two elements. Values lie by feature; of both kinds of keys with as many words a feature.
struct tile_layout : common_layout {
    int64_t value_keys, global_value_keys;  // words of a feature of the values
    int64_t width;                          // features of the values, whole tiles
    int64_t p_KQ, acc_DQ;

    tile_layout(const attention_call& call, const attention_sizes& sizes)
        : common_layout(call, sizes, whole(call.head_dim, kTileElements) / 2) {
        // With windows, the last tile of keys may end beyond the sequence.
        value_keys = (whole(sizes.length, kTileElements) + (call.window < 0 ? 0 : kTileElements)) / 2;
        global_value_keys = whole(sizes.num_global, kTileElements) / 2;
        width = whole(call.head_dim, kTileRows);
        around.values = take(width * value_keys);
        global.values = take(width * global_value_keys);
        p_KQ = take(kTileKeyBlock * kQueryBlock);
        acc_DQ = take(kQueryBlock * width);
    }
};

// Packs values as rows of features, with pairs of keys in a word; zeros where there is no key, up to
// `num_words`.
EE_TILE inline void lay_out_features(const bfloat16* rows, int64_t stride, int64_t count,
                                     int64_t head_dim, int64_t num_words, float* to_DS,
                                     int64_t to_stride) {
    for (int64_t word = 0; word < num_words; word += kTileWords) {
        for (int64_t first = 0; first < head_dim; first += kLanes) {
            vfloat square[kLanes];
            for (int64_t i = 0; i < kLanes; ++i) {
                const int64_t key = 2 * (word + i);
                square[i] = key >= count ? vfloat{}
                                         : pair_operands::load_across(rows + key * stride, stride,
                                                                      count - key, first, head_dim);
            }
            transpose(square);
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) store(to_DS + (first + i) * to_stride + word, square[i]);
        }
    }
}

// A matrix read by tiles: by rows, and by steps along the dimension that is summed over.
struct tile_source {
    const float* data;
    int64_t row, step;  // in words
};

// sums += left . right, or = where not `add`, for Rows tiles down and Columns across, 1 or 2 each.
template <int Rows, int Columns>
EE_INLINE void multiply_tiles(tile_source left, tile_source right, int64_t steps, float* sums,
                              int64_t sums_row, bool add) {
    constexpr int64_t kWord = sizeof(float);
    float* const below = sums + kTileRows * sums_row;
    if (add) {
        load_tile<0>(sums, sums_row * kWord);
        if (Columns == 2) load_tile<1>(sums + kTileWords, sums_row * kWord);
        if (Rows == 2) load_tile<2>(below, sums_row * kWord);
        if (Rows == 2 && Columns == 2) load_tile<3>(below + kTileWords, sums_row * kWord);
    } else {
        _tile_zero(0);
        if (Columns == 2) _tile_zero(1);
        if (Rows == 2) _tile_zero(2);
        if (Rows == 2 && Columns == 2) _tile_zero(3);
    }
    for (; steps > 0; --steps, left.data += left.step, right.data += right.step) {
        load_tile<4>(left.data, left.row * kWord);
        load_tile<6>(right.data, right.row * kWord);
        _tile_dpbf16ps(0, 4, 6);
        if (Rows == 2) {
            load_tile<5>(left.data + kTileRows * left.row, left.row * kWord);
            _tile_dpbf16ps(2, 5, 6);
        }
        if (Columns == 2) {
            load_tile<7>(right.data + kTileWords, right.row * kWord);
            _tile_dpbf16ps(1, 4, 7);
            if (Rows == 2) _tile_dpbf16ps(3, 5, 7);
        }
    }
    store_tile<0>(sums, sums_row * kWord);
    if (Columns == 2) store_tile<1>(sums + kTileWords, sums_row * kWord);
    if (Rows == 2) store_tile<2>(below, sums_row * kWord);
    if (Rows == 2 && Columns == 2) store_tile<3>(below + kTileWords, sums_row * kWord);
}

// Multiplies `rows` rows, a multiple of kTileRows, by Columns vectors of `right`.
template <int Columns>
EE_TILE void multiply_rows(tile_source left, tile_source right, int64_t steps, int64_t rows,
                           float* sums, bool add, int64_t sums_row = Columns * kLanes) {
    for (int64_t row = 0; row < rows; row += 2 * kTileRows) {
        const tile_source here = {left.data + row * left.row, left.row, left.step};
        with_number<2>(row + kTileRows < rows ? 2 : 1, [&](auto down) EE_INLINED {
            constexpr int kDown = decltype(down)::value;
            float* const to = sums + row * sums_row;
#pragma GCC unroll 2
            for (int c = 0; c + 2 <= Columns; c += 2) {
                multiply_tiles<kDown, 2>(here, {right.data + c * kLanes, right.row, right.step}, steps,
                                         to + c * kLanes, sums_row, add);
            }
            if constexpr (Columns % 2 == 1) {
                constexpr int kLast = (Columns - 1) * kLanes;
                multiply_tiles<kDown, 1>(here, {right.data + kLast, right.row, right.step}, steps,
                                         to + kLast, sums_row, add);
            }
        });
    }
}

template <int Columns>
EE_TILE void scale_scores(float* scores_KQ, int64_t num_keys, float scale) {
    for (int64_t i = 0; i < num_keys * Columns * kLanes; i += kLanes) {
        store(scores_KQ + i, load(scores_KQ + i) * scale);
    }
}

// Updates the maximum m by scores that are not scaled yet; scale >= 0.
template <int Columns>
EE_TILE void update_maximum(const float* scores_KQ, int64_t num_keys, float scale, float* m_Q) {
    vfloat largest[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) largest[c] = broadcast(-__builtin_inff());
    for (int64_t key = 0; key < num_keys; ++key) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c, scores_KQ += kLanes) {
            largest[c] = larger(largest[c], load(scores_KQ));
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        store(m_Q + c * kLanes, larger(load(m_Q + c * kLanes), largest[c] * scale));
    }
}

template <int Columns>
EE_TILE void rescale_acc(const float* alpha_Q, int64_t width, float* acc_DQ) {
    for (int64_t feature = 0; feature < width; ++feature) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c, acc_DQ += kLanes) {
            store(acc_DQ, load(acc_DQ) * load(alpha_Q + c * kLanes));
        }
    }
}

// Computes acc and l of one block of queries; the output is acc / l.
template <int Columns, typename Statistics>
void attend_by_tiles(const tile_layout& at, float* scratch, const query_block& block,
                     const Statistics& statistics) {
    constexpr int64_t kRow = Columns * kLanes;
    float* const p_KQ = scratch + at.p_KQ;
    float* const acc_DQ = scratch + at.acc_DQ;
    float* const m_Q = scratch + at.m_Q;
    float* const shift_Q = scratch + at.shift_Q;
    float* const l_Q = scratch + at.l_Q;
    float* const alpha_Q = scratch + at.alpha_Q;
    begin_queries<Columns>(m_Q, shift_Q, l_Q);
    statistics.begin();
    // Statistics are in float32, and are not taken of exponentials that are for bfloat16.
    const bool exact = block.has_terms || Statistics::kAreThere;
    const bool scaled = exact || block.scale < 0.0f;
    const float scale = scaled ? 1.0f : block.scale;
    bool is_first = true;
    const auto attend_block = [&](const key_span& span, int64_t key, int64_t value_keys) {
        const int64_t num_keys = least(kTileKeyBlock, span.num_keys - key);
        multiply_rows<Columns>({span.keys_SD + key * at.key_width, at.key_width, kTileWords},
                               {scratch + at.queries_DQ, kRow, kTileWords * kRow},
                               at.key_width / kTileWords, whole(num_keys, kTileRows), p_KQ, false);
        const block_places places = places_of(block, span, key, num_keys);
        if (scaled) scale_scores<Columns>(p_KQ, num_keys, block.scale);
        if (block.has_terms) {
            apply_terms<Columns>(block.terms, places, span.first + key, scratch + at.ramp, p_KQ, m_Q);
        } else {
            update_maximum<Columns>(p_KQ, num_keys, scale, m_Q);
        }
        statistics.rescale(m_Q, shift_Q, l_Q);
        rescale<Columns>(m_Q, shift_Q, l_Q, alpha_Q);
        statistics.see(places, p_KQ, shift_Q);
        if (exact) {
            exponentiate<pair_operands, Columns>(places, statistics, p_KQ, shift_Q, l_Q);
        } else {
            exponentiate_scaled<pair_operands, Columns>(p_KQ, num_keys, scale, shift_Q, l_Q);
        }
        const int64_t num_words = whole(num_keys, kTileElements) / 2;
        for (int64_t i = (num_keys + 1) / 2 * kRow; i < num_words * kRow; i += kLanes) {
            store(p_KQ + i, vfloat{});
        }
        if (!is_first) rescale_acc<Columns>(alpha_Q, at.width, acc_DQ);
        multiply_rows<Columns>({span.values_SD + key / 2, value_keys, kTileWords},
                               {p_KQ, kRow, kTileWords * kRow}, num_words / kTileWords, at.width,
                               acc_DQ, !is_first);
        is_first = false;
    };
    const int64_t value_keys[] = {at.value_keys, at.global_value_keys};
    for (int i = 0; i < 2; ++i) {
        const key_span& span = block.spans[i];
        for (int64_t key = 0; key < span.num_keys; key += kTileKeyBlock) {
            attend_block(span, key, value_keys[i]);
        }
    }
}

// Writes acc / l of each query.
template <int Columns>
EE_TILE void write_out_features(const float* acc_DQ, const float* l_Q, int64_t num_queries,
                                int64_t head_dim, bfloat16* output, int64_t output_stride) {
    for (int64_t query = 0; query < num_queries; query += kLanes) {
        const vfloat inverse = 1.0f / load(l_Q + query);
        const int64_t count = least<int64_t>(kLanes, num_queries - query);
        for (int64_t first = 0; first < head_dim; first += kLanes) {
            vfloat square[kLanes];
#pragma GCC unroll 16
            for (int i = 0; i < kLanes; ++i) {
                square[i] = load(acc_DQ + (first + i) * Columns * kLanes + query) * inverse;
            }
            transpose(square);
            for (int64_t i = 0; i < count; ++i) {
                store_part(output + (query + i) * output_stride, first, head_dim, square[i]);
            }
        }
    }
}

struct tile_engine {
    using Operands = pair_operands;
    using layout = tile_layout;

    const attention_call& call;
    const layout& at;
    float* const scratch;

    static void begin() { configure_tiles(); }
    static void end() { _tile_release(); }
    static int64_t value_offset(int64_t key) { return key / 2; }

    void lay_out(const bfloat16* keys, int64_t key_stride, const bfloat16* values, int64_t value_stride,
                 int64_t count, const packed_keys& to) const {
        lay_out_keys<pair_operands>(keys, key_stride, count, call.head_dim, scratch + to.keys);
        const int64_t most = to.keys == at.keys_SD ? at.value_keys : at.global_value_keys;
        const int64_t beyond = call.window < 0 ? 0 : kTileWords;
        lay_out_features(values, value_stride, count, call.head_dim,
                         least(most, whole(count, kTileElements) / 2 + beyond), scratch + to.values, most);
    }
    // products[row][column] = scale * rows . a panel, of packed rows and kQueryBlock transposed ones.
    void multiply(const float* rows, int64_t count, const float* panel, float* products,
                  int64_t products_row) const {
        multiply_rows<kMostColumns>({rows, at.key_width, kTileWords},
                                    {panel, kQueryBlock, kTileWords * kQueryBlock},
                                    at.key_width / kTileWords, whole(count, kTileRows), products, false,
                                    products_row);
        for (int64_t row = 0; row < count; ++row) {
            scale_scores<kMostColumns>(products + row * products_row, 1, call.scale * kLog2E);
        }
    }
    template <int Columns, typename Statistics>
    void attend(const query_block& block, const Statistics& statistics) const {
        attend_by_tiles<Columns>(at, scratch, block, statistics);
    }
    template <int Columns>
    void write_out(int64_t count, bfloat16* output, int64_t output_stride) const {
        write_out_features<Columns>(scratch + at.acc_DQ, scratch + at.l_Q, count, call.head_dim, output,
                                    output_stride);
    }
};

constexpr attention_kernel kTileAttention = kAttentionOf<tile_engine>;

}  // namespace EE_ISA
}  // namespace encoder_engine
