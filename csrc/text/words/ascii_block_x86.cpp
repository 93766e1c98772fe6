// The classifiers for AVX2 and AVX-512; each function carries its own target, the file has none.
#if defined(__x86_64__)

// GCC 12 sees uninitialised values in its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include <cstring>

#include "text/words/ascii_block.h"

#define EE_AVX2 __attribute__((target("avx2")))
#define EE_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

namespace encoder_engine {
namespace {

EE_AVX2 inline __m256i in_class(__m256i low, __m256i high_bit, const uint8_t* nibbles) {
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(nibbles)));
    const __m256i rows = _mm256_shuffle_epi8(table, low);
    return _mm256_cmpeq_epi8(_mm256_and_si256(rows, high_bit), high_bit);
}

template <typename Char>
EE_AVX2 inline __m256i load_32_bytes(const Char* text) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text));
}

// 32 characters as bytes; what is not ASCII becomes one above 127.
EE_AVX2 inline __m256i load_32(const uint8_t* text) { return load_32_bytes(text); }
EE_AVX2 inline __m256i load_32(const uint16_t* text) {
    const __m256i most = _mm256_set1_epi16(255);
    const __m256i first = _mm256_min_epu16(load_32_bytes(text), most);
    const __m256i second = _mm256_min_epu16(load_32_bytes(text + 16), most);
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(first, second), 0xD8);
}
EE_AVX2 inline __m256i load_32(const uint32_t* text) {
    // Characters are below 2^21: no saturation takes one for negative.
    const __m256i first = _mm256_packus_epi32(load_32_bytes(text), load_32_bytes(text + 8));
    const __m256i second = _mm256_packus_epi32(load_32_bytes(text + 16), load_32_bytes(text + 24));
    const __m256i most = _mm256_set1_epi16(255);
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_min_epu16(first, most), _mm256_min_epu16(second, most));
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// 64 characters as bytes, zeros from `count` on; what is not ASCII becomes one above 127.
EE_AVX512 inline __m512i load_64(const uint8_t* text, uint64_t kept) {
    return _mm512_maskz_loadu_epi8(kept, text);
}
EE_AVX512 inline __m512i load_64(const uint16_t* text, uint64_t kept) {
    const __m512i first = _mm512_maskz_loadu_epi16(static_cast<uint32_t>(kept), text);
    const __m512i second = _mm512_maskz_loadu_epi16(static_cast<uint32_t>(kept >> 32), text + 32);
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtusepi16_epi8(first)),
                              _mm512_cvtusepi16_epi8(second), 1);
}
EE_AVX512 inline __m512i load_64(const uint32_t* text, uint64_t kept) {
    const auto quarter = [&](int i) EE_AVX512 {
        const auto mask = static_cast<__mmask16>(kept >> (16 * i));
        return _mm512_cvtusepi32_epi8(_mm512_maskz_loadu_epi32(mask, text + 16 * i));
    };
    __m512i out = _mm512_castsi128_si512(quarter(0));
    out = _mm512_inserti32x4(out, quarter(1), 1);
    out = _mm512_inserti32x4(out, quarter(2), 2);
    return _mm512_inserti32x4(out, quarter(3), 3);
}

template <typename Char>
EE_AVX2 inline void classify_256(const Char* text, int count, const char_classes& classes,
                                 uint8_t* lowered, ascii_masks& masks) {
    Char tail[64] = {};
    if (count < 64) {
        std::memcpy(tail, text, static_cast<size_t>(count) * sizeof(Char));
        text = tail;
    }
    // Bytes above 127 get a high bit of 0, and in_class() would hold for them: they are masked.
    const __m256i high_bits = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i nibble = _mm256_set1_epi8(15);
    uint64_t found[5] = {}, beyond = 0;
    for (int i = 0; i < 64; i += 32) {
        const __m256i v = load_32(text + i);
        const __m256i low = _mm256_and_si256(v, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
        const __m256i high_bit = _mm256_shuffle_epi8(high_bits, high);
        const uint32_t not_ascii = static_cast<uint32_t>(_mm256_movemask_epi8(v));
        beyond |= static_cast<uint64_t>(not_ascii) << i;
        for (const int bit : {0, 1, 2, 4}) {
            const __m256i members = in_class(low, high_bit, classes.nibbles[bit]);
            const uint32_t bits = static_cast<uint32_t>(_mm256_movemask_epi8(members));
            found[bit] |= static_cast<uint64_t>(bits & ~not_ascii) << i;
        }
        const __m256i upper = in_class(low, high_bit, classes.nibbles[3]);
        const __m256i lower =
            _mm256_add_epi8(v, _mm256_and_si256(upper, _mm256_set1_epi8(0x20)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(lowered + i), lower);
    }
    masks = {found[0], found[1], found[2], found[4], beyond};
}

template <typename Char>
EE_AVX512 inline void classify_512(const Char* text, int count, const char_classes& classes,
                                   uint8_t* lowered, ascii_masks& masks) {
    const __m512i v = load_64(text, ~0ull >> (64 - count));
    masks.beyond = _mm512_movepi8_mask(v);
    const __m512i flags =
        _mm512_maskz_permutex2var_epi8(~masks.beyond, _mm512_load_si512(classes.flags), v,
                                       _mm512_load_si512(classes.flags + 64));
    masks.letters = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kLetter));
    masks.singles = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kSingle));
    masks.spaces = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kSpace));
    masks.starts = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kStart));
    const __mmask64 upper = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kUpper));
    _mm512_storeu_si512(lowered, _mm512_mask_add_epi8(v, upper, v, _mm512_set1_epi8(0x20)));
}

}  // namespace

EE_AVX2 void classify_avx2(const uint8_t* text, int count, const char_classes& classes,
                           uint8_t* lowered, ascii_masks& masks) {
    classify_256(text, count, classes, lowered, masks);
}
EE_AVX2 void classify_avx2(const uint16_t* text, int count, const char_classes& classes,
                           uint8_t* lowered, ascii_masks& masks) {
    classify_256(text, count, classes, lowered, masks);
}
EE_AVX2 void classify_avx2(const uint32_t* text, int count, const char_classes& classes,
                           uint8_t* lowered, ascii_masks& masks) {
    classify_256(text, count, classes, lowered, masks);
}
EE_AVX512 void classify_avx512(const uint8_t* text, int count, const char_classes& classes,
                               uint8_t* lowered, ascii_masks& masks) {
    classify_512(text, count, classes, lowered, masks);
}
EE_AVX512 void classify_avx512(const uint16_t* text, int count, const char_classes& classes,
                               uint8_t* lowered, ascii_masks& masks) {
    classify_512(text, count, classes, lowered, masks);
}
EE_AVX512 void classify_avx512(const uint32_t* text, int count, const char_classes& classes,
                               uint8_t* lowered, ascii_masks& masks) {
    classify_512(text, count, classes, lowered, masks);
}

}  // namespace encoder_engine

#endif
