// The arrays of a piece of attention in the scratch memory, and how operands are packed into them.
#pragma once

#include "cpu/kernels.h"
#include "cpu/simd/attention/attention_operands.h"
#include "cpu/simd/tile.h"

namespace encoder_engine {
namespace EE_ISA {

constexpr int64_t kQueryBlock = kMostColumns * kLanes;
constexpr int64_t kMostKeyBlock = 256;

// Hands out the scratch memory in whole vectors; offsets are in words.
struct scratch_offsets {
    int64_t end = 0;

    int64_t take(int64_t words) {
        const int64_t at = end;
        end += whole(words, 16);
        return at;
    }
};

// Where packed keys and values lie.
struct packed_keys {
    int64_t keys, values;
};

// Offsets of what every instruction set has. S: keys of the sequence, G: its global tokens, Q:
// kQueryBlock, D: the head size in whole words, N: distance vectors, in panels of Q when transposed.
struct common_layout : scratch_offsets {
    int64_t key_width;  // words
    packed_keys around, global;  // keys_SD and values
    int64_t keys_SD, queries_DQ;
    int64_t m_Q, shift_Q, l_Q, alpha_Q;
    int64_t query_places_Q, key_places_S, global_places_G, ramp;
    int64_t gathered_keys_GD, gathered_values_GD;
    int64_t queries_QD, distance_keys_DN, of_queries_QN, of_keys_SN;
    int64_t products_row;
    int64_t statistics;  // rows of Q

    common_layout(const attention_call& call, const attention_sizes& sizes, int64_t words_of_key)
        : key_width(words_of_key) {
        // 16 rows more than there are: tiles read whole.
        around.keys = keys_SD = take((sizes.length + 16) * key_width);
        global.keys = take(sizes.num_global == 0 ? 0 : (sizes.num_global + 16) * key_width);
        queries_DQ = take(kQueryBlock * key_width);
        for (int64_t* const each : {&m_Q, &shift_Q, &l_Q, &alpha_Q, &query_places_Q}) {
            *each = take(kQueryBlock);
        }
        key_places_S = take(sizes.length);
        global_places_G = take(sizes.num_global);
        ramp = take(kMostKeyBlock + kQueryBlock + kLanes);
        gathered_keys_GD = take(sizes.num_global * call.head_dim);
        gathered_values_GD = take(sizes.num_global * call.head_dim);
        products_row = whole(sizes.num_distances, kQueryBlock);
        const bool has_distances = sizes.num_distances > 0;
        queries_QD = take(has_distances ? (kQueryBlock + 16) * key_width : 0);
        distance_keys_DN = take(products_row * key_width);
        of_queries_QN = take(whole(kQueryBlock, 16) * products_row);
        of_keys_SN = take(whole(sizes.length, 16) * products_row);
        const bool has_statistics = call.statistics.values != nullptr;
        statistics = take(has_statistics ? (6 + call.statistics.num_marks) * kQueryBlock : 0);
    }
};

constexpr int64_t kKeyBlock = 96;

// A word holds Depth elements: of queries and keys along D, of p and values along S and K, kKeyBlock.
template <int Depth>
struct attention_layout : common_layout {
    int64_t width;  // of values and acc
    int64_t p_KQ, acc_QD;

    attention_layout(const attention_call& call, const attention_sizes& sizes)
        : common_layout(call, sizes, whole((call.head_dim + Depth - 1) / Depth, kLanes)),
          width(whole(call.head_dim, kLanes)) {
        around.values = take((sizes.length + Depth - 1) / Depth * width);
        global.values = take((sizes.num_global + Depth - 1) / Depth * width);
        p_KQ = take(kKeyBlock * kQueryBlock);
        acc_QD = take(kQueryBlock * width);
    }
};

template <typename Element>
const Element* head_of(const head_rows& rows, int64_t row, int64_t head) {
    return static_cast<const Element*>(rows.data) + row * rows.token_stride + head * rows.head_stride;
}

// Copies one head of the piece's global tokens, contiguously.
template <typename Element>
const Element* gather_global_rows(const attention_piece& piece, const head_rows& rows, int64_t head,
                                  int64_t head_dim, float* memory) {
    Element* const to = reinterpret_cast<Element*>(memory);
    for (int64_t i = 0; i < piece.num_global; ++i) {
        std::memcpy(to + i * head_dim, head_of<Element>(rows, piece.global_rows[i], head),
                    static_cast<size_t>(head_dim) * sizeof(Element));
    }
    return to;
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

}  // namespace EE_ISA
}  // namespace encoder_engine
