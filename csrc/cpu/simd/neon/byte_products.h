// The byte operands of the quantized GEMM by NEON without its products of matrices.
#pragma once

#include "cpu/simd/vector_products.h"

namespace encoder_engine {
namespace EE_ISA {

// Rows less their zero point, as signed bytes.
struct signed_rows : plain_rows<uint8_t> {
    static const Byte* lay_out(const void* input, int64_t count, int64_t row_bytes, Byte* to) {
        const Byte* from = static_cast<const Byte*>(input);
        const int64_t filled = whole(row_bytes, kDepthUnit);
        const Byte* const rows = to;
        for (int64_t row = 0; row < count; ++row, from += row_bytes, to += filled) {
            for (int64_t at = 0; at < row_bytes; ++at) to[at] = from[at] ^ 0x80;
            std::memset(to + row_bytes, 0, static_cast<size_t>(filled - row_bytes));
        }
        return rows;
    }
};

// With these rows, a panel's sums begin with nothing: the zero point is in none of them.
constexpr int32_t kNoStarts[kPanelWidth] = {};

#if defined(__ARM_FEATURE_DOTPROD)

struct byte_operands : packed_words {
    using Rows = signed_rows;
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) {
        return reinterpret_cast<vfloat>(vdotq_s32(reinterpret_cast<int32x4_t>(sum), reinterpret_cast<int8x16_t>(b),
                                                  reinterpret_cast<int8x16_t>(a)));
    }
    template <int Lane>
    EE_INLINE static vfloat multiply_lane(vfloat a, vfloat b, vfloat sum) {
        return reinterpret_cast<vfloat>(vdotq_laneq_s32(reinterpret_cast<int32x4_t>(sum),
                                                        reinterpret_cast<int8x16_t>(b),
                                                        reinterpret_cast<int8x16_t>(a), Lane));
    }
};

struct byte_products : vector_products<byte_operands, int32_t> {
    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const uint8_t* panel, int64_t filled,
                                   const Sum*, Sum* sums, Finish& finish) {
        vector_products::multiply(rows, num_rows, panel, filled, kNoStarts, sums, finish);
    }
};

#else

// Without products of bytes in 32 bits: a product fits 16 bits, and two of -128 by -128 do not, so that each is
// added to sums of 32 bits on its own.
struct byte_products : signed_rows {
    using Sum = int32_t;
    static constexpr int64_t kBlockRows = 1;

    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const uint8_t* panel, int64_t filled,
                                   const Sum*, Sum* sums, Finish& finish) {
        for (int64_t at = 0; at < kPanelWidth; at += 2 * kLanes) {
            for (int64_t first = 0; first < num_rows; first += kRows) {
                const int some = static_cast<int>(least<int64_t>(kRows, num_rows - first));
                with_number<kRows>(some, [&](auto tile) EE_INLINED {
                    multiply_tile<decltype(tile)::value>(rows + first * filled, panel + at * kWordBytes, filled,
                                                         sums + first * kPanelWidth + at);
                });
            }
        }
        finish(0, num_rows);
        finish.rest();
    }

private:
    static constexpr int kRows = 4;
    static constexpr int64_t kWordRow = kPanelWidth * kWordBytes;
    // Distance, in bytes of a row, at which weights are prefetched from the L2 to the L1 cache.
    static constexpr int64_t kAhead = 8 * kWordBytes;

    template <int Rows>
    EE_TILE static void multiply_tile(const Byte* rows, const uint8_t* panel, int64_t filled, Sum* sums) {
        int32x4_t low[Rows][2] = {}, high[Rows][2] = {};
        for (int64_t at = 0; at < filled; at += 2 * kWordBytes, panel += 2 * kWordRow) {
            __builtin_prefetch(panel + kAhead * kPanelWidth);
            __builtin_prefetch(panel + kAhead * kPanelWidth + kWordRow);
#pragma GCC unroll 4
            for (int r = 0; r < Rows; ++r) {
                const int8x8_t words = vreinterpret_s8_s32(load<int32x2_t>(rows + r * filled + at));
                const int8x8_t first = vreinterpret_s8_s32(vdup_lane_s32(vreinterpret_s32_s8(words), 0));
                const int8x8_t second = vreinterpret_s8_s32(vdup_lane_s32(vreinterpret_s32_s8(words), 1));
#pragma GCC unroll 2
                for (int c = 0; c < 2; ++c) {
                    const int8x16_t one = load<int8x16_t>(panel + 16 * c), two = load<int8x16_t>(panel + 16 * c + kWordRow);
                    low[r][c] = vpadalq_s16(low[r][c], vmull_s8(vget_low_s8(one), first));
                    high[r][c] = vpadalq_s16(high[r][c], vmull_s8(vget_high_s8(one), first));
                    low[r][c] = vpadalq_s16(low[r][c], vmull_s8(vget_low_s8(two), second));
                    high[r][c] = vpadalq_s16(high[r][c], vmull_s8(vget_high_s8(two), second));
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) {
            for (int c = 0; c < 2; ++c) store(sums + r * kPanelWidth + kLanes * c, vpaddq_s32(low[r][c], high[r][c]));
        }
    }
};

#endif

}  // namespace EE_ISA
}  // namespace encoder_engine
