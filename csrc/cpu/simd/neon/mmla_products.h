// The inner loop of the GEMMs by NEON's products of matrices: two rows by two features, eight bytes deep.
#pragma once

#include "cpu/simd/vector_products.h"

namespace encoder_engine {
namespace EE_ISA {

// Tiles of 12 rows by 8 features, 24 vectors of sums. Rows lie in pairs, eight bytes of each in turn. A panel's
// words of four bytes become features of eight when two steps' words are interleaved: 4 instructions beside 24
// products, and no layout of its own. Dot says what the bytes hold, and multiplies them.
template <typename Dot>
struct mmla_products : plain_rows<uint8_t>, panel_steps {
    using Sum = typename Dot::Sum;
    static constexpr int64_t kBlockRows = 2;
    static constexpr int64_t kRowUnit = 12;

    static const Byte* lay_out(const void* input, int64_t count, int64_t row_bytes, Byte* to) {
        const Byte* from = static_cast<const Byte*>(input);
        const int64_t filled = whole(row_bytes, kDepthUnit);
        for (int64_t row = 0; row < count; ++row, from += row_bytes) {
            Byte* const pair = to + row / 2 * 2 * filled + row % 2 * kHalf;
            int64_t at = 0;
            for (; at + kHalf <= row_bytes; at += kHalf) std::memcpy(pair + 2 * at, from + at, kHalf);
            for (; at < filled; at += kHalf) {
                std::memset(pair + 2 * at, 0, kHalf);
                if (at < row_bytes) std::memcpy(pair + 2 * at, from + at, static_cast<size_t>(row_bytes - at));
            }
        }
        if (count % 2 != 0) {
            Byte* const beyond = to + (count - 1) * filled + kHalf;
            for (int64_t at = 0; at < filled; at += kHalf) std::memset(beyond + 2 * at, 0, kHalf);
        }
        return to;
    }

    // Writes the sums of a row beyond an odd number of rows too.
    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const uint8_t* panel, int64_t filled,
                                   const Sum* starts, Sum* sums, Finish& finish, bool = false) {
        const int64_t num_pairs = (num_rows + 1) / 2;
        if (filled == 0) {
            for (int64_t row = 0; row < num_rows; ++row) {
                std::memcpy(sums + row * kPanelWidth, starts, kPanelWidth * sizeof(Sum));
            }
        }
        for (int64_t at = 0; at < filled; at += kDepthBlock) {
            const int64_t depth = least(kDepthBlock, filled - at);
            for (int64_t column = 0; column < kPanelWidth; column += kColumns) {
                const uint8_t* const weights = panel + at * kPanelWidth + column * kWordBytes;
                for (int64_t first = 0; first < num_pairs; first += kPairs) {
                    const int count = static_cast<int>(least<int64_t>(kPairs, num_pairs - first));
                    Sum* const to = sums + 2 * first * kPanelWidth + column;
                    with_fetcher(column, first / kPairs, num_pairs <= 2 * kPairs, weights, depth,
                                 [&](const auto& between) EE_INLINED {
                        with_number<kPairs>(count, [&](auto pairs) EE_INLINED {
                            multiply_tile<decltype(pairs)::value>(
                                rows + 2 * (first * filled + at), 2 * filled, weights, depth / kWordBytes,
                                at == 0 ? starts + column : to, at == 0 ? 0 : kPanelWidth, to, between);
                        });
                    });
                }
            }
        }
        finish(0, num_rows);
        finish.rest();
    }

private:
    static constexpr int64_t kHalf = 8;  // bytes of a row in an operand
    static constexpr int kPairs = 6, kColumns = 8;
    static constexpr int64_t kAhead = 8;

    template <int Pairs, typename Between>
    EE_TILE static void multiply_tile(const Byte* rows, int64_t pair_row, const uint8_t* panel, int64_t words,
                                      const Sum* before, int64_t before_row, Sum* to, Between between) {
        for (int64_t done = 0; done < words; done += kWordsOfSum) {
            const int64_t some = least(words - done, kWordsOfSum);
            // A row is whole units of depth.
            if (some <= 0 || some % (kDepthUnit / kWordBytes) != 0) __builtin_unreachable();
            vfloat totals[Pairs][4] = {};
            for (int64_t step = 0; step < some; step += 2, rows += 2 * kHalf, panel += 2 * kWordRow) {
                __builtin_prefetch(panel + kAhead * kWordRow);
                __builtin_prefetch(panel + (kAhead + 1) * kWordRow);
                between(done + step);
                between(done + step + 1);
                vfloat features[4];
#pragma GCC unroll 2
                for (int half = 0; half < 2; ++half) {
                    const vfloat even = load(panel + 16 * half), odd = load(panel + kWordRow + 16 * half);
                    features[2 * half] = vzip1q_f32(even, odd);
                    features[2 * half + 1] = vzip2q_f32(even, odd);
                }
#pragma GCC unroll 6
                for (int p = 0; p < Pairs; ++p) {
                    const vfloat pair = load(rows + p * pair_row);
#pragma GCC unroll 4
                    for (int c = 0; c < 4; ++c) totals[p][c] = Dot::run(pair, features[c], totals[p][c]);
                }
            }
#pragma GCC unroll 6
            for (int p = 0; p < Pairs; ++p) {
#pragma GCC unroll 2
                for (int half = 0; half < 2; ++half) {
                    const float64x2_t low = reinterpret_cast<float64x2_t>(totals[p][2 * half]);
                    const float64x2_t high = reinterpret_cast<float64x2_t>(totals[p][2 * half + 1]);
                    const vfloat both[2] = {reinterpret_cast<vfloat>(vzip1q_f64(low, high)),
                                            reinterpret_cast<vfloat>(vzip2q_f64(low, high))};
#pragma GCC unroll 2
                    for (int r = 0; r < 2; ++r) {
                        const vfloat sum = load(before + (2 * p + r) * before_row + half * kLanes);
                        store(to + (2 * p + r) * kPanelWidth + half * kLanes, add_sums<Sum>(sum, both[r]));
                    }
                }
            }
            before = to;
            before_row = kPanelWidth;
        }
    }
};

struct byte_mmla {
    using Sum = int32_t;
    EE_INLINE static vfloat run(vfloat rows, vfloat features, vfloat sums) {
        // In assembly: for the built-in, GCC 12 copies sums back and forth, and runs out of registers.
        __asm__("usmmla %0.4s, %1.16b, %2.16b" : "+w"(sums) : "w"(rows), "w"(features));
        return sums;
    }
};

struct bfloat16_mmla {
    using Sum = float;
    EE_INLINE static vfloat run(vfloat rows, vfloat features, vfloat sums) {
        return vbfmmlaq_f32(sums, reinterpret_cast<bfloat16x8_t>(rows), reinterpret_cast<bfloat16x8_t>(features));
    }
};

}  // namespace EE_ISA
}  // namespace encoder_engine
