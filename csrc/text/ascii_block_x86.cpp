// The classifiers for AVX2 and AVX-512; each function carries its own target, the file has none.
#if defined(__x86_64__)

#include <immintrin.h>

#include "text/ascii_block.h"

namespace encoder_engine {
namespace {

__attribute__((target("avx2"))) inline __m256i in_class(__m256i low, __m256i high_bit,
                                                        const uint8_t* nibbles) {
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(nibbles)));
    const __m256i rows = _mm256_shuffle_epi8(table, low);
    return _mm256_cmpeq_epi8(_mm256_and_si256(rows, high_bit), high_bit);
}

}  // namespace

__attribute__((target("avx2"))) void classify_avx2(const uint8_t* text,
                                                   const char_classes& classes, uint8_t* lowered,
                                                   ascii_masks& masks) {
    // Bytes above 127 get a high bit of 0, and in_class() would hold for them: they are masked.
    const __m256i high_bits = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i nibble = _mm256_set1_epi8(15);
    uint64_t found[5] = {};
    for (int i = 0; i < 64; i += 32) {
        const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + i));
        const __m256i low = _mm256_and_si256(v, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(v, 4), nibble);
        const __m256i high_bit = _mm256_shuffle_epi8(high_bits, high);
        const uint64_t ascii = static_cast<uint32_t>(~_mm256_movemask_epi8(v));
        for (const int bit : {0, 1, 2, 4}) {
            const __m256i members = in_class(low, high_bit, classes.nibbles[bit]);
            found[bit] |= (static_cast<uint32_t>(_mm256_movemask_epi8(members)) & ascii) << i;
        }
        const __m256i upper = in_class(low, high_bit, classes.nibbles[3]);
        const __m256i lower =
            _mm256_add_epi8(v, _mm256_and_si256(upper, _mm256_set1_epi8(0x20)));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(lowered + i), lower);
    }
    masks = {found[0], found[1], found[2], found[4]};
}

__attribute__((target("avx512f,avx512bw,avx512vbmi"))) void classify_avx512(
    const uint8_t* text, const char_classes& classes, uint8_t* lowered, ascii_masks& masks) {
    const __m512i v = _mm512_loadu_si512(text);
    const __mmask64 ascii = ~_mm512_movepi8_mask(v);
    const __m512i flags =
        _mm512_maskz_permutex2var_epi8(ascii, _mm512_load_si512(classes.flags), v,
                                       _mm512_load_si512(classes.flags + 64));
    masks.letters = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kLetter));
    masks.singles = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kSingle));
    masks.spaces = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kSpace));
    masks.starts = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kStart));
    const __mmask64 upper = _mm512_test_epi8_mask(flags, _mm512_set1_epi8(char_classes::kUpper));
    _mm512_storeu_si512(lowered, _mm512_mask_add_epi8(v, upper, v, _mm512_set1_epi8(0x20)));
}

}  // namespace encoder_engine

#endif
