// Sums of products for a block of rows and a panel of a weight, by vectors of words.
#pragma once

#include "cpu/tile.h"
#include "cpu/weight_panels.h"

namespace encoder_engine {
namespace EE_ISA {

// Rows side by side, each filled up with zeros; Byte_ is what a byte of the input takes there.
template <typename Byte_>
struct plain_rows {
    using Byte = Byte_;
    static void begin() {}
    static void end() {}
};

struct copied_rows : plain_rows<uint8_t> {
    // Where the rows lie then: full ones stay in their place.
    static const Byte* lay_out(const void* input, int64_t count, int64_t row_bytes, Byte* to) {
        const Byte* from = static_cast<const Byte*>(input);
        const int64_t filled = whole(row_bytes, kDepthUnit);
        if (filled == row_bytes) return from;
        const Byte* const rows = to;
        for (int64_t row = 0; row < count; ++row, from += row_bytes, to += filled) {
            std::memcpy(to, from, static_cast<size_t>(row_bytes));
            std::memset(to + row_bytes, 0, static_cast<size_t>(filled - row_bytes));
        }
        return rows;
    }
};

// Operands says what the words of rows and weights hold, and multiplies them.
template <typename Operands, typename Sum_>
struct vector_products : Operands::Rows {
    using Byte = typename Operands::Rows::Byte;
    using Sum = Sum_;

    static constexpr int64_t kBlockRows = 1;

    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const uint8_t* panel,
                                   int64_t filled, const Sum* starts, Sum* sums, Finish& finish) {
        for (int64_t at = 0; at < filled; at += kDepthBlock) {
            const int64_t depth = least(kDepthBlock, filled - at);
            for (int64_t column = 0; column < kPanelWidth; column += kColumns * kLanes) {
                const uint8_t* const weights = panel + at * kPanelWidth + column * kWordBytes;
                for_each_tile<kColumns>(num_rows, [&](int64_t first, auto tile) {
                    Sum* const to = sums + first * kPanelWidth + column;
                    multiply_tile<decltype(tile)::value>(
                        rows + first * filled + at, filled, weights, depth / kWordBytes,
                        at == 0 ? starts + column : to, at == 0 ? 0 : kPanelWidth, to);
                });
            }
        }
        finish(0, num_rows);
        finish.rest();
    }

private:
    static constexpr int kColumns = kMostColumns;
    // Of a panel as much as stays in a core's cache while all rows meet it, in bytes of a row.
    static constexpr int64_t kDepthBlock = 2048;

    template <int Rows>
    EE_TILE static void multiply_tile(const Byte* rows, int64_t filled, const uint8_t* panel,
                                      int64_t words, const Sum* before, int64_t before_row, Sum* sums) {
        // With a way past the loop GCC 12 keeps the sums in memory too.
        if (words <= 0) __builtin_unreachable();
        vfloat totals[Rows][kColumns];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c) totals[r][c] = load(before + r * before_row + c * kLanes);
        }
        encoder_engine::EE_ISA::multiply<Operands>(
            reinterpret_cast<const float*>(rows), filled * int64_t{sizeof(Byte)} / kWordBytes,
            int64_t{sizeof(Byte)}, reinterpret_cast<const float*>(panel), kPanelWidth, words, totals);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
            for (int c = 0; c < kColumns; ++c) store(sums + r * kPanelWidth + c * kLanes, totals[r][c]);
        }
    }
};

}  // namespace EE_ISA
}  // namespace encoder_engine
