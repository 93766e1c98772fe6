// The inner loop of the GEMMs by AMX tiles: a block of rows by a panel of the weight.
#pragma once

#include "cpu/simd/amx_tiles.h"
#include "cpu/weight_panels.h"

namespace encoder_engine {
namespace EE_ISA {

// Tiles of 16 rows of 64 bytes: four of sums, two of rows of the input, two of weights. Dot says what
// their words hold, and multiplies them.
template <typename Dot>
struct tile_products {
    using Byte = uint8_t;
    using Sum = typename Dot::Sum;
    static constexpr bool kTiled = true;
    static constexpr int64_t kTileRows = 16;
    static constexpr int64_t kBlockRows = 32;
    static constexpr int64_t kRowUnit = kBlockRows;

    static void begin() { configure_tiles(); }
    static void end() { _tile_release(); }

    // Lays out the rows as tiles: first along the depth, then down the rows.
    static const Byte* lay_out(const void* input, int64_t count, int64_t row_bytes, Byte* to) {
        const int64_t filled = whole(row_bytes, kDepthUnit);
        for (int64_t row = 0; row < whole(count, kTileRows); ++row) {
            Byte* const line = to + row / kTileRows * kTileRows * filled + row % kTileRows * kDepthUnit;
            for (int64_t at = 0; at < filled; at += kDepthUnit) {
                const int64_t left = row < count ? least(kDepthUnit, row_bytes - at) : 0;
                const __mmask64 kept = left == kDepthUnit ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
                _mm512_storeu_si512(line + at * kTileRows,
                                    _mm512_maskz_loadu_epi8(
                                        kept, static_cast<const Byte*>(input) + row * row_bytes + at));
            }
        }
        return to;
    }

    // Calls finish(first row, rows) when a block's sums are complete, and some() now and then, for
    // vector work beside the tiles. `is_near`: the panel is already in the core's caches.
    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const Byte* panel, int64_t filled,
                                   const Sum* starts, Sum* sums, Finish& finish, bool is_near = false) {
        const int64_t rest = num_rows % kBlockRows, narrow_rows = rest <= kTileRows ? rest : 0;
        for (int64_t row = 0; row < num_rows - narrow_rows; row += kBlockRows) {
            for (int64_t column = 0; column < kPanelWidth; column += 2 * kTileRows) {
                const Byte* const tiles = panel + column * kWordBytes;
                Sum* const to = sums + row * kPanelWidth + column;
                if (row == 0 && !is_near) {
                    wide<true>(rows, tiles, filled, starts + column, to, finish);
                } else {
                    wide<false>(rows + row * filled, tiles, filled, starts + column, to, finish);
                }
            }
            finish(row, least(kBlockRows, num_rows - row));
        }
        if (narrow_rows > 0) {
            const int64_t row = num_rows - narrow_rows;
            Sum* const to = sums + row * kPanelWidth;
            if (row == 0 && !is_near) {
                narrow<true>(rows, panel, filled, starts, to);
            } else {
                narrow<false>(rows + row * filled, panel, filled, starts, to);
            }
            finish(row, narrow_rows);
        }
    }

private:
    static constexpr int64_t kPanelRow = kPanelWidth * kWordBytes;
    static constexpr int64_t kSumsRow = kPanelWidth * kWordBytes;
    // Bytes between the weights of consecutive steps along the depth.
    static constexpr int64_t kStep = kTileRows * kPanelRow;
    // Distance, in steps, at which weights are prefetched from memory to the L2 cache.
    static constexpr int64_t kAhead = 4;

    // Prefetches two neighbouring tiles of weights.
    EE_INLINE static void fetch_ahead(const Byte* tiles) {
#pragma GCC unroll 16
        for (int row = 0; row < kTileRows; ++row) {
            const Byte* const line = tiles + kAhead * kStep + row * kPanelRow;
            __builtin_prefetch(line, 0, 2);
            __builtin_prefetch(line + 64, 0, 2);
        }
    }

    // 32 rows, 32 features.
    template <bool Fetches, typename Finish>
    EE_INLINE static void wide(const Byte* rows, const Byte* panel, int64_t filled, const Sum* starts,
                               Sum* sums, Finish& finish) {
        const Byte* const below = rows + kTileRows * filled;
        const int64_t pauses = 2 * filled / kDepthUnit;  // of a block
        load_tile<0>(starts, 0);
        load_tile<1>(starts + 16, 0);
        load_tile<2>(starts, 0);
        load_tile<3>(starts + 16, 0);
        for (int64_t at = 0; at < filled; at += kDepthUnit) {
            if constexpr (Fetches) fetch_ahead(panel);
            stream_tile<6>(panel, kPanelRow);
            load_tile<4>(rows + at * kTileRows, kDepthUnit);
            stream_tile<7>(panel + 64, kPanelRow);
            Dot::template run<0, 4, 6>();
            load_tile<5>(below + at * kTileRows, kDepthUnit);
            Dot::template run<1, 4, 7>();
            Dot::template run<2, 5, 6>();
            Dot::template run<3, 5, 7>();
            finish.some(pauses);
            panel += kStep;
        }
        store_tile<0>(sums, kSumsRow);
        store_tile<1>(sums + 16, kSumsRow);
        store_tile<2>(sums + kTileRows * kPanelWidth, kSumsRow);
        store_tile<3>(sums + kTileRows * kPanelWidth + 16, kSumsRow);
    }

    // 16 rows, 64 features.
    template <bool Fetches>
    static void narrow(const Byte* rows, const Byte* panel, int64_t filled, const Sum* starts,
                       Sum* sums) {
        load_tile<0>(starts, 0);
        load_tile<1>(starts + 16, 0);
        load_tile<2>(starts + 32, 0);
        load_tile<3>(starts + 48, 0);
        for (int64_t at = 0; at < filled; at += kDepthUnit) {
            if constexpr (Fetches) {
                fetch_ahead(panel);
                fetch_ahead(panel + 128);
            }
            load_tile<4>(rows + at * kTileRows, kDepthUnit);
            load_tile<5>(panel, kPanelRow);
            Dot::template run<0, 4, 5>();
            load_tile<6>(panel + 64, kPanelRow);
            Dot::template run<1, 4, 6>();
            load_tile<7>(panel + 128, kPanelRow);
            Dot::template run<2, 4, 7>();
            load_tile<5>(panel + 192, kPanelRow);
            Dot::template run<3, 4, 5>();
            panel += kStep;
        }
        store_tile<0>(sums, kSumsRow);
        store_tile<1>(sums + 16, kSumsRow);
        store_tile<2>(sums + 32, kSumsRow);
        store_tile<3>(sums + 48, kSumsRow);
    }
};

struct byte_dot {
    using Sum = int32_t;
    template <int Sums, int Rows, int Weights>
    EE_INLINE static void run() {
        __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Rows), "i"(Weights));
    }
};

struct bfloat16_dot {
    using Sum = float;
    template <int Sums, int Rows, int Weights>
    EE_INLINE static void run() {
        __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Rows), "i"(Weights));
    }
};

}  // namespace EE_ISA
}  // namespace encoder_engine
