// The masks by AVX2 and AVX-512; each function carries its own target, the file has none.
#if defined(__x86_64__)

// GCC 12 sees uninitialised values in its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "text/bpe/byte_masks.h"

#define EE_AVX2 __attribute__((target("avx2")))
#define EE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

namespace encoder_engine {
namespace {

EE_AVX2 inline __m256i load_32(const uint8_t* bytes) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

// A table of 128 bytes as eight of 16, one for each high half of a byte.
EE_AVX2 inline __m256i look_up_128(const uint8_t* table, __m256i bytes) {
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(15));
    const __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    __m256i out = _mm256_setzero_si256();
    for (int row = 0; row < 8; ++row) {
        const __m128i part = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * row));
        const __m256i found = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(part), low);
        const __m256i here = _mm256_cmpeq_epi8(high, _mm256_set1_epi8(static_cast<char>(row)));
        out = _mm256_or_si256(out, _mm256_and_si256(found, here));
    }
    return out;
}

EE_AVX2 inline uint64_t top_bits(__m256i bytes) {
    return static_cast<uint32_t>(_mm256_movemask_epi8(bytes));
}

}  // namespace

EE_AVX2 void read_masks_avx2(const uint8_t* bytes, const uint8_t* classes, const uint8_t* ascii,
                             class_masks& masks) {
    uint64_t bits[9] = {};
    for (int i = 0; i < 64; i += 32) {
        const __m256i v = load_32(bytes + i);
        const __m256i found = _mm256_blendv_epi8(look_up_128(ascii, v), load_32(classes + i), v);
        bits[0] |= top_bits(_mm256_slli_epi16(found, 7)) << i;
        bits[1] |= top_bits(_mm256_slli_epi16(found, 6)) << i;
        bits[2] |= top_bits(_mm256_slli_epi16(found, 5)) << i;
        bits[3] |= top_bits(_mm256_slli_epi16(found, 4)) << i;
        bits[4] |= top_bits(_mm256_slli_epi16(found, 3)) << i;
        bits[5] |= top_bits(_mm256_slli_epi16(found, 2)) << i;
        bits[6] |= top_bits(_mm256_slli_epi16(found, 1)) << i;
        bits[7] |= top_bits(v) << i;
        // As signed numbers the bytes 0x80 to 0xBF are the least.
        bits[8] |= top_bits(_mm256_cmpgt_epi8(_mm256_set1_epi8(-64), v)) << i;
    }
    masks = {bits[0], bits[1], bits[2], bits[3], bits[4], bits[5], bits[6], bits[7], bits[8]};
}

EE_AVX512 void read_masks_avx512(const uint8_t* bytes, const uint8_t* classes, const uint8_t* ascii,
                                 class_masks& masks) {
    const __m512i v = _mm512_loadu_si512(bytes);
    const __mmask64 beyond = _mm512_movepi8_mask(v);
    const __m512i found = _mm512_mask_mov_epi8(
        _mm512_permutex2var_epi8(_mm512_loadu_si512(ascii), v, _mm512_loadu_si512(ascii + 64)),
        beyond, _mm512_loadu_si512(classes));
    const auto with = [found](uint8_t bit) EE_AVX512 {
        return _mm512_test_epi8_mask(found, _mm512_set1_epi8(static_cast<char>(bit)));
    };
    masks = {with(kLetterClass),  with(kNumberClass), with(kSpaceClass), with(kBlankClass),
             with(kNewlineClass), with(kQuoteClass),  with(kNulClass),   beyond,
             _mm512_cmplt_epi8_mask(v, _mm512_set1_epi8(-64))};
}

}  // namespace encoder_engine

#endif
