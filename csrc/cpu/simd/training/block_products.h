// Products of blocks of attention's matrices: rows of words by a panel of words, summed in float32.
#pragma once

#include <type_traits>

#include "cpu/simd/attention/attention_operands.h"
#include "cpu/simd/training/operand_words.h"
#if defined(__AMX_BF16__)
#include "cpu/simd/amx_tiles.h"
#include "cpu/simd/tile_products.h"
#endif

namespace encoder_engine {
namespace EE_ISA {

// What elements are multiplied as: without instructions for bfloat16, as float32.
template <typename Element>
struct multiplied_as {
    using type = float;
};
#if defined(EE_BFLOAT16_PAIRS)
template <>
struct multiplied_as<bfloat16> {
    using type = bfloat16;
};
#endif

// Elements that the sides of blocks are filled up to, so that tiles and vectors are whole.
template <typename Word>
constexpr int64_t kBlockUnit = 16 * kWordElements<Word>;

// A product: sums[r][c] (+)= left[r][step] right[step][c], 0 <= r < rows, 0 <= c < columns.
struct block_product {
    const float* left;
    int64_t left_row;
    const float* right;
    int64_t right_step;
    float* sums;
    int64_t sums_row;
    int64_t rows, columns, steps;
    bool adds;
};

template <typename Operands, int Columns>
EE_INLINE void multiply_columns(const block_product& call, int64_t column) {
    for_each_tile<Columns>(call.rows, [&](int64_t first, auto tile) EE_INLINED {
        constexpr int kRows = decltype(tile)::value;
        vfloat sums[kRows][Columns] = {};
        multiply<Operands>(call.left + first * call.left_row, call.left_row, int64_t{1}, call.right + column,
                           call.right_step, call.steps, sums);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
            for (int c = 0; c < Columns; ++c) {
                float* const to = call.sums + (first + r) * call.sums_row + column + c * kLanes;
                store(to, call.adds ? load(to) + sums[r][c] : sums[r][c]);
            }
        }
    });
}

template <typename Operands>
EE_TILE void multiply_by_vectors(const block_product& call) {
    int64_t column = 0;
    for (; column + kMostColumns * kLanes <= call.columns; column += kMostColumns * kLanes) {
        multiply_columns<Operands, kMostColumns>(call, column);
    }
    for (; column < call.columns; column += kLanes) multiply_columns<Operands, 1>(call, column);
}

#if defined(__AMX_BF16__)

// 16 x Rows rows by 16 x Columns columns; rows, columns and steps are multiples of 16.
template <int Rows, int Columns>
EE_INLINE void multiply_tiles(const block_product& call, int64_t row, int64_t column) {
    static constexpr float kZeros[16] = {};
    float* const to = call.sums + row * call.sums_row + column;
    const int64_t stride = call.sums_row * kWordBytes, from_stride = call.adds ? stride : 0;
    const auto begin = [&](int64_t r, int64_t c) EE_INLINED {
        return call.adds ? to + 16 * (r * call.sums_row + c) : kZeros;
    };
    load_tile<0>(begin(0, 0), from_stride);
    if constexpr (Columns > 1) load_tile<1>(begin(0, 1), from_stride);
    if constexpr (Rows > 1) load_tile<2>(begin(1, 0), from_stride);
    if constexpr (Rows > 1 && Columns > 1) load_tile<3>(begin(1, 1), from_stride);
    const float* left = call.left + row * call.left_row;
    const float* right = call.right + column;
    for (int64_t step = 0; step < call.steps; step += 16, left += 16, right += 16 * call.right_step) {
        load_tile<4>(left, call.left_row * kWordBytes);
        load_tile<6>(right, call.right_step * kWordBytes);
        bfloat16_dot::run<0, 4, 6>();
        if constexpr (Columns > 1) {
            load_tile<7>(right + 16, call.right_step * kWordBytes);
            bfloat16_dot::run<1, 4, 7>();
        }
        if constexpr (Rows > 1) {
            load_tile<5>(left + 16 * call.left_row, call.left_row * kWordBytes);
            bfloat16_dot::run<2, 5, 6>();
            if constexpr (Columns > 1) bfloat16_dot::run<3, 5, 7>();
        }
    }
    store_tile<0>(to, stride);
    if constexpr (Columns > 1) store_tile<1>(to + 16, stride);
    if constexpr (Rows > 1) store_tile<2>(to + 16 * call.sums_row, stride);
    if constexpr (Rows > 1 && Columns > 1) store_tile<3>(to + 16 * call.sums_row + 16, stride);
}

EE_INLINE void multiply_by_tiles(const block_product& call) {
    int64_t row = 0;
    for (; row + 32 <= call.rows; row += 32) {
        int64_t column = 0;
        for (; column + 32 <= call.columns; column += 32) multiply_tiles<2, 2>(call, row, column);
        if (column < call.columns) multiply_tiles<2, 1>(call, row, column);
    }
    if (row == call.rows) return;
    int64_t column = 0;
    for (; column + 32 <= call.columns; column += 32) multiply_tiles<1, 2>(call, row, column);
    if (column < call.columns) multiply_tiles<1, 1>(call, row, column);
}

#endif

template <typename Word>
EE_INLINE void multiply_block(const block_product& call) {
    if constexpr (std::is_same_v<Word, float>) {
        multiply_by_vectors<float_operands<float>>(call);
    } else {
#if defined(__AMX_BF16__)
        multiply_by_tiles(call);
#elif defined(EE_BFLOAT16_PAIRS)
        multiply_by_vectors<pair_operands>(call);
#endif
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
