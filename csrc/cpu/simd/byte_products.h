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

// Without VNNI, the byte instructions sum pairs of products in 16 bits, which saturate. Here bytes
// are widened to 16 bits first, and products are summed in 32 bits.
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
        shared_fetcher fetcher;
        fetcher.begin(panel + filled * kPanelWidth, filled * kPanelWidth,
                      (num_rows + kRows - 1) / kRows * (kPanelWidth / kColumns), filled / kWordBytes);
        for (int64_t at = 0; at < kPanelWidth; at += kColumns) {
            for (int64_t first = 0; first < num_rows; first += kRows) {
                const int some = static_cast<int>(least<int64_t>(kRows, num_rows - first));
                with_number<kRows>(some, [&](auto tile) EE_INLINED {
                    const auto run = [&](const auto& between) EE_INLINED {
                        multiply_tile<decltype(tile)::value>(
                            rows + first * filled, panel + at * kWordBytes, filled, starts + at,
                            sums + first * kPanelWidth + at, between);
                    };
                    if (num_rows < kFewRows) {
                        fetcher.with_share(run);
                    } else {
                        run(nothing{});
                    }
                });
            }
        }
        finish(0, num_rows);
        finish.rest();
    }

private:
    // 12 sums, two vectors of weights, one of rows and a product: the 16 registers.
    static constexpr int kRows = 6, kColumns = 8;
    // The next panel is fetched for fewer rows: the products of more take so long that the processor's own prefetching
    // suffices. Weights from memory are multiplied by 8 rows 1.4 times as fast as without (Zen 4).
    static constexpr int64_t kFewRows = 4 * kRows;
    // Distance, in bytes of a row, at which weights are prefetched from the L2 to the L1 cache.
    static constexpr int64_t kAhead = 8 * kWordBytes;

    // In assembly: GCC 12 computes all products before it adds them, and runs out of registers.
    EE_INLINE static void add_products(__m256i& sum, __m256i a, __m256i b) {
        __m256i products;
        __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(a), "x"(b));
    }

    template <int Rows, typename Between>
    EE_TILE static void multiply_tile(const Byte* rows, const uint8_t* panel, int64_t filled,
                                      const Sum* starts, Sum* sums, Between between) {
        __m256i totals[Rows][2] = {};
        for (int64_t at = 0; at < filled; at += kWordBytes, panel += kPanelWidth * kWordBytes) {
            __builtin_prefetch(panel + kAhead * kPanelWidth);
            between(at / kWordBytes);
            const __m256i low = _mm256_cvtepi8_epi16(load<__m128i>(panel));
            const __m256i high = _mm256_cvtepi8_epi16(load<__m128i>(panel + 16));
#pragma GCC unroll 6
            for (int r = 0; r < Rows; ++r) {
                long long four;
                std::memcpy(&four, rows + r * filled + at, sizeof(four));
                const __m256i factors = _mm256_set1_epi64x(four);
                add_products(totals[r][0], factors, low);
                add_products(totals[r][1], factors, high);
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < Rows; ++r) {
            // Neighbours belong to one feature; they come out as features 0 1 4 5 2 3 6 7.
            const __m256i joined = _mm256_hadd_epi32(totals[r][0], totals[r][1]);
            const __m256i ordered = _mm256_permute4x64_epi64(joined, 0b11011000);
            store(sums + r * kPanelWidth, _mm256_add_epi32(ordered, load<__m256i>(starts)));
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
