// The byte operands of the quantized GEMM, with exact int32 sums on every instruction set.
#pragma once

#if defined(__AMX_INT8__)
#include "cpu/simd/tile_products.h"
#elif defined(EE_MMLA)
#include "cpu/simd/neon/mmla_products.h"
#elif defined(EE_NEON)
#include "cpu/simd/neon/byte_products.h"
#else
#include "cpu/simd/vector_products.h"
#endif

namespace encoder_engine {
namespace EE_ISA {

#if defined(__AMX_INT8__)

using byte_products = tile_products<byte_dot>;

#elif defined(EE_MMLA)

using byte_products = mmla_products<byte_mmla>;

#elif !defined(EE_NEON)

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)

struct byte_operands : whole_words {
    using Rows = copied_rows;
    EE_INLINE static vfloat broadcast_word(const float* from) {
        uint32_t word;
        std::memcpy(&word, from, sizeof(word));
        return as_float(broadcast(word));
    }
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) {
        // In assembly: for the built-in, GCC 12 copies each sum back and forth, and runs out of
        // registers.
#if defined(__AVX512VNNI__)
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#else
        __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
#endif
        return sum;
    }
};

using byte_products = vector_products<byte_operands, int32_t>;

#elif defined(__AVX2__)

// Words of two 16-bit integers.
struct half_pairs : whole_words {
    EE_INLINE static vfloat broadcast_word(const float* from) {
        uint32_t word;
        std::memcpy(&word, from, sizeof(word));
        return as_float(broadcast(word));
    }
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) {
        // In assembly: GCC 12 computes all products before it adds them, and runs out of registers.
        vfloat products;
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
        return sum;
    }
};

// Without VNNI, the byte instructions sum pairs of products in 16 bits, which saturate. Here bytes are widened to 16
// bits first, and products are summed in 32 bits. Weights are widened once for all rows, a block of features and depth
// at a time.
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
        int64_t at = 0;
        do {
            const int64_t depth = least(kDepth, filled - at);
            for (int64_t feature = 0; feature < kPanelWidth; feature += kFeatures) {
                const uint8_t* const block = panel + at * kPanelWidth + feature * kWordBytes;
                const bool last = feature + kFeatures == kPanelWidth;
                widen(block, depth, last ? panel + (at + depth) * kPanelWidth : block + kBlockRow, widened);
                for_each_tile<kMostColumns>(num_rows, [&](int64_t first, auto tile) EE_INLINED {
                    Sum* const kept = sums + first * kPanelWidth + feature;
                    multiply_tile<decltype(tile)::value>(rows + first * filled + at, filled, widened, depth,
                                                         at == 0 ? starts + feature : kept,
                                                         at == 0 ? 0 : kPanelWidth, kept);
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
    static constexpr int64_t kBlockRow = kFeatures * kWordBytes;

    // Writes a block's weights as [depth / 2][kFeatures][2], and prefetches the block at `next`.
    EE_TILE static void widen(const uint8_t* from, int64_t depth, const uint8_t* next, int16_t* to) {
        for (int64_t at = 0; at < depth; at += kWordBytes, from += kPanelWidth * kWordBytes) {
            fetch_to_second_cache(next + at * kPanelWidth);
            for (int64_t feature = 0; feature < kFeatures; feature += kLanes, to += 2 * kLanes) {
                const __m256i words = load<__m256i>(from + feature * kWordBytes);
                const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(words, 8), 8);
                const __m256i odd = _mm256_srai_epi16(words, 8);
                store(to, _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0b10101010));
                store(to + 2 * kFeatures, _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0b10101010));
            }
            to += 2 * kFeatures;
        }
    }

    // Adds to each of `before` the products of a row and a feature, over the block's depth.
    template <int Rows>
    EE_TILE static void multiply_tile(const Byte* rows, int64_t filled, const int16_t* weights, int64_t depth,
                                      const Sum* before, int64_t before_row, Sum* to) {
        vfloat totals[Rows][kMostColumns] = {};
        encoder_engine::EE_ISA::multiply<half_pairs>(reinterpret_cast<const float*>(rows), filled / 2, 1,
                                                     reinterpret_cast<const float*>(weights), kFeatures, depth / 2,
                                                     totals);
#pragma GCC unroll 6
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
            for (int c = 0; c < kMostColumns; ++c) {
                const vfloat sum = load(before + r * before_row + c * kLanes);
                store(to + r * kPanelWidth + c * kLanes, add_sums<Sum>(sum, totals[r][c]));
            }
        }
    }
};

#else

struct byte_products : copied_rows {
    using Sum = int32_t;
    static constexpr int64_t kBlockRows = 1;

    template <typename Finish>
    EE_INLINE static void multiply(const Byte* rows, int64_t num_rows, const uint8_t* panel,
                                   int64_t filled, const Sum* starts, Sum* sums, Finish& finish) {
        for (int64_t row = 0; row < num_rows; ++row, rows += filled, sums += kPanelWidth) {
            std::memcpy(sums, starts, kPanelWidth * sizeof(Sum));
            for (int64_t at = 0; at < filled; at += kWordBytes) {
                const uint8_t* const weights = panel + at * kPanelWidth;
                for (int64_t feature = 0; feature < kPanelWidth; feature += kLanes) {
                    const vint words = load<vint>(weights + feature * kWordBytes);
                    store(sums + feature, add_products(load<vint>(sums + feature), rows + at, words));
                }
            }
        }
        finish(0, num_rows);
        finish.rest();
    }

private:
    // sum + the products of four bytes of a row with those of each word. The compilers' own code for single
    // bytes takes 2 (GCC 12) and 7 times (Clang 22) as long.
    EE_INLINE static vint add_products(vint sum, const Byte* row, vint words) {
#if defined(__SSE2__)
        using halves = int16_t __attribute__((vector_size(16)));
        const halves even = reinterpret_cast<halves>(words) << 8 >> 8, odd = reinterpret_cast<halves>(words) >> 8;
        sum += multiply_halves(reinterpret_cast<vint>(even), row[0] | row[2] << 16);
        return sum + multiply_halves(reinterpret_cast<vint>(odd), row[1] | row[3] << 16);
#else
        sum += (words << 24 >> 24) * row[0] + (words << 16 >> 24) * row[1];
        return sum + (words << 8 >> 24) * row[2] + (words >> 24) * row[3];
#endif
    }
#if defined(__SSE2__)
    // For each word, the sum of the products of its halves with those of `factors`.
    EE_INLINE static vint multiply_halves(vint words, int32_t factors) {
        return reinterpret_cast<vint>(
            _mm_madd_epi16(reinterpret_cast<__m128i>(words), _mm_set1_epi32(factors)));
    }
#endif
};

#endif
#endif

}  // namespace EE_ISA
}  // namespace encoder_engine
