// The word cutter for AVX-512: bits to positions by compression, keys by masked loads.
#if defined(__x86_64__)

// GCC 12 sees uninitialised values in its own intrinsics (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "text/words/word_cutter.h"

#define EE_AVX512 \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))

namespace encoder_engine {
namespace {

alignas(64) const uint8_t kPlaces[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
    22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
    44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};

// Writes base + i for each bit i, and up to 31 values more.
EE_AVX512 inline uint16_t* write_places(uint64_t bits, int base, uint16_t* out) {
    const int count = static_cast<int>(_mm_popcnt_u64(bits));
    const __m512i places = _mm512_maskz_compress_epi8(bits, _mm512_load_si512(kPlaces));
    const __m512i offset = _mm512_set1_epi16(static_cast<int16_t>(base));
    const __m512i low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(places));
    _mm512_storeu_si512(out, _mm512_add_epi16(low, offset));
    if (count > 32) {
        const __m512i high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(places, 1));
        _mm512_storeu_si512(out + 32, _mm512_add_epi16(high, offset));
    }
    return out + count;
}

template <typename Unit>
EE_AVX512 inline void cut(unit_masks& masks, int count, const Unit* units, word_chunk& chunk) {
    const int num_masks = clear_behind(masks, count);
    uint16_t* start = chunk.starts;
    uint16_t* end = chunk.sizes;
    for (int i = 0; i < num_masks; ++i) {
        const word_edges edges(masks, i, i > 0 ? masks.letters[i - 1] >> 63 : 0);
        start = write_places(edges.starts, 64 * i, start);
        end = write_places(edges.ends, 64 * i, end);
    }
    const int num_words = chunk.num_words = static_cast<int>(start - chunk.starts);
    for (int i = 0; i < num_words; i += 32) {
        const __m512i ends = _mm512_loadu_si512(chunk.sizes + i);
        const __m512i sizes = _mm512_sub_epi16(ends, _mm512_loadu_si512(chunk.starts + i));
        _mm512_storeu_si512(chunk.sizes + i, _mm512_add_epi16(sizes, _mm512_set1_epi16(1)));
    }
    for (int i = 0; i < num_words; ++i) {
        const uint32_t size = chunk.sizes[i] * static_cast<uint32_t>(sizeof(Unit));
        // Sizes from 16 on keep all bits.
        const auto kept = static_cast<__mmask16>(_bzhi_u32(0xFFFF, size));
        const __m128i bytes = _mm_maskz_loadu_epi8(kept, units + chunk.starts[i]);
        chunk.keys[i] = word_key::make(static_cast<uint64_t>(_mm_cvtsi128_si64(bytes)),
                                       static_cast<uint64_t>(_mm_extract_epi64(bytes, 1)));
    }
}

}  // namespace

EE_AVX512 uint16_t* write_places_avx512(const uint64_t* bits, int num_words, uint16_t* out) {
    for (int i = 0; i < num_words; ++i) out = write_places(bits[i], 64 * i, out);
    return out;
}

EE_AVX512 void cut_bytes_avx512(unit_masks& masks, int count, const uint8_t* units,
                                word_chunk& chunk) {
    cut(masks, count, units, chunk);
}

EE_AVX512 void cut_units_avx512(unit_masks& masks, int count, const uint16_t* units,
                                word_chunk& chunk) {
    cut(masks, count, units, chunk);
}

}  // namespace encoder_engine

#endif
