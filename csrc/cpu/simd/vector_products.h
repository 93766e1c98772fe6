// The inner loop of the GEMMs by vectors: a block of rows by a panel of the weight.
#pragma once

#include <type_traits>

#include "cpu/simd/shared_fetch.h"
#include "cpu/simd/tile.h"
#include "cpu/weight_panels.h"

namespace encoder_engine {
namespace EE_ISA {

// Contiguous rows, each padded with zeros. Byte_ is the type that addresses the input's bytes.
template <typename Byte_>
struct plain_rows {
    using Byte = Byte_;
    static constexpr bool kTiled = false;
    static void begin() {}
    static void end() {}
};

struct copied_rows : plain_rows<uint8_t> {
    // Returns the padded rows: full ones are not copied.
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

// The steps along the depth of a panel, and what is prefetched in them.
struct panel_steps {
    // Distance, in steps, at which weights are prefetched from memory to the L2 cache.
    static constexpr int64_t kFar = 32;
    // Bytes of one step along the depth: one word of each feature of the panel.
    static constexpr int64_t kWordRow = kPanelWidth * kWordBytes;
    // Depth of a block, in bytes of a row: its part of a panel stays in the cache for all rows.
    static constexpr int64_t kDepthBlock = 4096;
    // Words summed before the sum is added to the total: one long float32 sum would round more.
    static constexpr int64_t kWordsOfSum = 256;

    // Prefetches `Bytes` bytes in each step, from memory to the L2 cache.
    template <int64_t Bytes>
    struct fetcher {
        const uint8_t* from;
        EE_INLINE void operator()(int64_t step) const {
            for (int64_t at = 0; at < Bytes; at += 64) {
                fetch_to_second_cache(from + step * kWordRow + at);
            }
        }
    };

    // Calls run(between) with what a tile of rows fetches in its steps from `weights` on, `depth` bytes of a row.
    template <typename Run>
    EE_INLINE static void with_fetcher(int64_t column, int64_t tile_number, bool few_rows, const uint8_t* weights,
                                       int64_t depth, const Run& run) {
        // When the second tile of rows begins, the cache holds the weights that the first tile read, and memory
        // has time for the next panel.
        if (column > 0 || tile_number > 2) {
            run(nothing{});
        } else if (tile_number > 0) {
            run(fetcher<kWordRow / 2>{weights + depth * kPanelWidth + (tile_number - 1) * kWordRow / 2});
        } else if (few_rows) {
            run(fetcher<kWordRow>{weights + kFar * kWordRow});
        } else {
            run(nothing{});
        }
    }
};

template <typename Sum>
EE_INLINE vfloat add_sums(vfloat a, vfloat b) {
    return std::is_same_v<Sum, float> ? a + b : as_float(as_word(a) + as_word(b));
}

// Writes a tile's totals, added to the sums `before`.
template <typename Sum, int Rows, int Columns>
EE_INLINE void store_sums(const Sum* before, int64_t before_row, const vfloat (&totals)[Rows][Columns], Sum* to,
                          int64_t to_row) {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            const vfloat sum = load(before + r * before_row + c * kLanes);
            store(to + r * to_row + c * kLanes, add_sums<Sum>(sum, totals[r][c]));
        }
    }
}

// Operands defines the elements in words of rows and weights, and multiplies them.
template <typename Operands, typename Sum_>
struct vector_products : Operands::Rows, panel_steps {
    using Byte = typename Operands::Rows::Byte;
    using Sum = Sum_;

    static constexpr int64_t kBlockRows = 1;
    static constexpr int64_t kRowUnit = rows_beside(kMostColumns);

    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const uint8_t* panel,
                                   int64_t filled, const Sum* starts, Sum* sums, Finish& finish,
                                   bool = false) {
        multiply_to(rows, num_rows, panel, filled, starts, sums, sums, kPanelWidth);
        finish(0, num_rows);
        finish.rest();
    }

    // The last sums go to `output`, whose rows are `output_row` apart; those before them to `sums`.
    EE_INLINE static void multiply_to(const Byte* rows, int64_t num_rows, const uint8_t* panel,
                                      int64_t filled, const Sum* starts, Sum* sums, Sum* output,
                                      int64_t output_row) {
        if (filled == 0) {
            for (int64_t row = 0; row < num_rows; ++row) {
                std::memcpy(output + row * output_row, starts, kPanelWidth * sizeof(Sum));
            }
        }
#if defined(EE_SHARED_FETCH)
        shared_fetcher fetcher;
#endif
        for (int64_t at = 0; at < filled; at += kDepthBlock) {
            const int64_t depth = least(kDepthBlock, filled - at);
#if defined(EE_SHARED_FETCH)
            const int64_t next_depth = least(kDepthBlock, at + depth < filled ? filled - at - depth : filled);
            fetcher.begin(panel + (at + depth) * kPanelWidth, next_depth * kPanelWidth,
                          (num_rows + kRowUnit - 1) / kRowUnit * (kPanelWidth / (kColumns * kLanes)),
                          depth / kWordBytes);
#endif
            for (int64_t column = 0; column < kPanelWidth; column += kColumns * kLanes) {
                const uint8_t* const weights = panel + at * kPanelWidth + column * kWordBytes;
                const bool last = at + depth == filled;
                const int64_t to_row = last ? output_row : kPanelWidth;
                for_each_tile<kColumns>(num_rows, [&](int64_t first, auto tile) EE_INLINED {
                    Sum* const kept = sums + first * kPanelWidth + column;
                    const auto run = [&](const auto& between) EE_INLINED {
                        multiply_tile<decltype(tile)::value>(
                            rows + first * filled + at, filled, weights, depth / kWordBytes,
                            at == 0 ? starts + column : kept, at == 0 ? 0 : kPanelWidth,
                            last ? output + first * output_row + column : kept, to_row, between);
                    };
#if defined(EE_SHARED_FETCH)
                    fetcher.with_share(run);
#else
                    with_fetcher(column, first / rows_beside(kColumns), num_rows <= 2 * rows_beside(kColumns),
                                 weights, depth, run);
#endif
                });
            }
        }
    }

private:
    static constexpr int kColumns = kMostColumns;
    // Distance, in steps, at which weights are prefetched from the L2 to the L1 cache.
    static constexpr int kAhead = 8;
    template <int Rows, typename Between>
    EE_TILE static void multiply_tile(const Byte* rows, int64_t filled, const uint8_t* panel,
                                      int64_t words, const Sum* before, int64_t before_row, Sum* to,
                                      int64_t to_row, Between between) {
        const float* left = reinterpret_cast<const float*>(rows);
        const float* right = reinterpret_cast<const float*>(panel);
        for (int64_t done = 0; done < words; done += kWordsOfSum) {
            const int64_t some = least(words - done, kWordsOfSum);
            // If the loop could run zero times, GCC 12 would keep the sums in memory too.
            if (some <= 0) __builtin_unreachable();
#if defined(EE_NEON)
            // Nor are there steps beyond the last whole vectors of the rows.
            if (some % (kDepthUnit / kWordBytes) != 0) __builtin_unreachable();
#endif
            vfloat totals[Rows][kColumns] = {};
            encoder_engine::EE_ISA::multiply<Operands, kAhead>(
                left, filled * int64_t{sizeof(Byte)} / kWordBytes, int64_t{sizeof(Byte)}, right, kPanelWidth,
                some, totals, [=](int64_t step) EE_INLINED { between(done + step); });
            store_sums(before, before_row, totals, to, to_row);
            left += some * int64_t{sizeof(Byte)};
            right += some * kPanelWidth;
            before = to;
            before_row = to_row;
        }
    }
};

}  // namespace EE_ISA
}  // namespace encoder_engine
