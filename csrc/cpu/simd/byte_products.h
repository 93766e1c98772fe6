// The byte operands of the quantized GEMM, with exact int32 sums on every instruction set.
#pragma once

#if defined(__AMX_INT8__)
#include "cpu/simd/tile_products.h"
#elif defined(EE_MMLA)
#include "cpu/simd/neon/mmla_products.h"
#elif defined(EE_NEON)
#include "cpu/simd/neon/byte_products.h"
#elif defined(__AVX2__) && !defined(__AVX512VNNI__) && !defined(__AVXVNNI__)
#include "cpu/simd/widened_byte_products.h"
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

struct byte_operands : packed_words {
    using Rows = copied_rows;
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

#elif !defined(__AVX2__)

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
