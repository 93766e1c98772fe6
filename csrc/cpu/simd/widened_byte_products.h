// The byte operands of AVX2 without VNNI.
#pragma once

#include "cpu/simd/vector_products.h"

namespace encoder_engine {
namespace EE_ISA {

// Words of two 16-bit integers.
struct half_pairs : packed_words {
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) {
        // In assembly: GCC 12 computes all products before it adds them, and runs out of registers.
        vfloat products;
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
        return sum;
    }
};

// Of the weights, a word of four bytes is taken as two of 16-bit integers.
struct byte_quads : half_pairs {
    static constexpr int kParts = 2;

    template <int Part>
    EE_INLINE static vfloat take_part(vfloat word) {
        const __m256i bytes = reinterpret_cast<__m256i>(word);
        const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), odd = _mm256_srai_epi16(bytes, 8);
        constexpr int kUpper = 0b10101010;  // of each word
        return reinterpret_cast<vfloat>(Part == 0 ? _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), kUpper)
                                                  : _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, kUpper));
    }
};

// Without VNNI, the byte instructions sum pairs of products in 16 bits, which saturate. Here bytes are widened to 16
// bits first, and products are summed in 32 bits. Weights are widened once for all rows, a block of features and depth
// at a time, or in registers where one tile has all rows.
struct byte_products : plain_rows<uint16_t> {
    using Sum = int32_t;
    static constexpr int64_t kBlockRows = 1;

    static const Byte* lay_out(const void* input, int64_t count, int64_t row_bytes, Byte* to) {
        const uint8_t* from = static_cast<const uint8_t*>(input);
        const int64_t filled = whole(row_bytes, kDepthUnit);
        const Byte* const rows = to;
        for (int64_t row = 0; row < count; ++row, from += row_bytes, to += filled) {
            for (int64_t at = 0; at < row_bytes; ++at) to[at] = from[at];
            for (int64_t at = row_bytes; at < filled; ++at) to[at] = 0;
        }
        return rows;
    }

    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const uint8_t* panel,
                                   int64_t filled, const Sum* starts, Sum* sums, Finish& finish) {
        alignas(kFeatures * sizeof(Sum)) int16_t widened[kDepth * kFeatures];
        const bool few = num_rows <= rows_beside(kMostColumns);
        int64_t at = 0;
        do {
            const int64_t depth = least(kDepth, filled - at);
            for (int64_t feature = 0; feature < kPanelWidth; feature += kFeatures) {
                const uint8_t* const block = panel + at * kPanelWidth + feature * kWordBytes;
                const bool last = feature + kFeatures == kPanelWidth;
                const uint8_t* const next = last ? panel + (at + depth) * kPanelWidth : block + kFeatures * kWordBytes;
                const block_fetcher between{next};
                if (!few) widen(block, depth, between, widened);
                for_each_tile<kMostColumns>(num_rows, [&](int64_t first, auto tile) EE_INLINED {
                    constexpr int kRows = decltype(tile)::value;
                    const Byte* const from = rows + first * filled + at;
                    Sum* const kept = sums + first * kPanelWidth + feature;
                    const Sum* const before = at == 0 ? starts + feature : kept;
                    const int64_t before_row = at == 0 ? 0 : kPanelWidth;
                    if (few) {
                        multiply_tile<byte_quads, kRows>(from, filled, block, kPanelWidth, depth / kWordBytes, before,
                                                         before_row, kept, between);
                    } else {
                        multiply_tile<half_pairs, kRows>(from, filled, widened, kFeatures, depth / 2, before, before_row,
                                                         kept, nothing{});
                    }
                });
            }
            at += depth;
        } while (at < filled);
        finish(0, num_rows);
        finish.rest();
    }

private:
    // A block: its widened weights stay in the L1 cache. Four bytes of its depth are 64 bytes, a cache line.
    static constexpr int64_t kFeatures = kMostColumns * kLanes, kDepth = 512;

    // Prefetches the block that follows, a line in each step of four bytes.
    struct block_fetcher {
        const uint8_t* next;
        EE_INLINE void operator()(int64_t step) const {
            fetch_to_second_cache(next + step * kPanelWidth * kWordBytes);
        }
    };

    // Writes a block's weights as [depth / 2][kFeatures][2].
    EE_TILE static void widen(const uint8_t* from, int64_t depth, block_fetcher between, int16_t* to) {
        for (int64_t step = 0; step < depth / kWordBytes; ++step, from += kPanelWidth * kWordBytes) {
            between(step);
            for (int64_t feature = 0; feature < kFeatures; feature += kLanes, to += 2 * kLanes) {
                const vfloat words = load(from + feature * kWordBytes);
                store(to, byte_quads::take_part<0>(words));
                store(to + 2 * kFeatures, byte_quads::take_part<1>(words));
            }
            to += 2 * kFeatures;
        }
    }

    // Adds to each of `before` the products of a row and a feature, over the block's depth.
    template <typename Operands, int Rows, typename Between>
    EE_TILE static void multiply_tile(const Byte* rows, int64_t filled, const void* weights, int64_t weights_step,
                                      int64_t steps, const Sum* before, int64_t before_row, Sum* to, Between between) {
        vfloat totals[Rows][kMostColumns] = {};
        encoder_engine::EE_ISA::multiply<Operands>(reinterpret_cast<const float*>(rows), filled / 2, Operands::kParts,
                                                   static_cast<const float*>(weights), weights_step, steps, totals,
                                                   between);
        store_sums(before, before_row, totals, to, kPanelWidth);
    }
};

}  // namespace EE_ISA
}  // namespace encoder_engine
