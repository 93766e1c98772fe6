// Vectors of elements read and written as float32.
#pragma once

#include <type_traits>

#include "cpu/element.h"
#include "cpu/simd/vector.h"

namespace encoder_engine {
namespace EE_ISA {

using vhalf = uint16_t __attribute__((vector_size(2 * kLanes)));
using vsigned_byte = int8_t __attribute__((vector_size(kLanes)));

EE_INLINE vfloat load_elements(const float* from) { return load(from); }
EE_INLINE vfloat load_elements(const bfloat16* from) {
    return as_float(__builtin_convertvector(load<vhalf>(from), vword) << 16);
}

// GCC 12 converts byte by byte otherwise: a table of int8 took 5 times as long.
EE_INLINE vfloat load_elements(const int8_t* from) {
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return reinterpret_cast<vfloat>(
        _mm512_maskz_cvtepi32_ps(0xffff, _mm512_maskz_cvtepi8_epi32(0xffff, bytes)));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    return reinterpret_cast<vfloat>(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
#else
    return __builtin_convertvector(load<vsigned_byte>(from), vfloat);
#endif
}
// Exact for every finite number, denormals too: 2^112 moves float16's exponents to float32's.
EE_INLINE vfloat load_elements(const float16* from) {
    const vword bits = __builtin_convertvector(load<vhalf>(from), vword);
    const vfloat magnitude = as_float((bits & 0x7fff) << 13) * 0x1p112f;
    return as_float(as_word(magnitude) | (bits & 0x8000) << 16);
}

// Rounds to the nearest, ties to even.
EE_INLINE vhalf round_to_bfloat16(vfloat x) {
#if defined(__AVX512BF16__)
    return reinterpret_cast<vhalf>(_mm512_cvtneps_pbh(reinterpret_cast<__m512>(x)));
#elif defined(EE_BFLOAT16_PAIRS)
    return reinterpret_cast<vhalf>(vcvt_bf16_f32(x));
#else
    const vword bits = as_word(x);
    const vword rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const vword quiet = bits >> 16 | 0x40;  // adding could carry a NaN's bits into an infinity
    return __builtin_convertvector(x == x ? rounded : quiet, vhalf);
#endif
}

EE_INLINE void store_elements(float* to, vfloat x) { store(to, x); }
EE_INLINE void store_elements(bfloat16* to, vfloat x) { store(to, round_to_bfloat16(x)); }

// The elements as they would be read after they were stored.
template <typename Element>
EE_INLINE vfloat rounded(vfloat x) {
    if constexpr (std::is_same_v<Element, bfloat16>) {
        return as_float(__builtin_convertvector(round_to_bfloat16(x), vword) << 16);
    } else {
        return x;
    }
}

// The first `count` elements of a vector, 0 <= count < kLanes; reads zeros after them.
template <typename Element>
EE_INLINE vfloat load_some(const Element* from, int64_t count) {
    Element whole[kLanes] = {};
    std::memcpy(whole, from, static_cast<size_t>(count) * sizeof(Element));
    return load_elements(whole);
}
template <typename Element>
EE_INLINE void store_some(Element* to, int64_t count, vfloat x) {
    Element whole[kLanes];
    store_elements(whole, x);
    std::memcpy(to, whole, static_cast<size_t>(count) * sizeof(Element));
}

// The elements [first, first + kLanes) of a row of `width`; there are none beyond it.
template <typename Element>
EE_INLINE vfloat load_part(const Element* row, int64_t first, int64_t width) {
    return first + kLanes <= width ? load_elements(row + first)
                                   : load_some(row + first, width - first);
}
template <typename Element>
EE_INLINE void store_part(Element* row, int64_t first, int64_t width, vfloat x) {
    if (first + kLanes <= width) {
        store_elements(row + first, x);
    } else {
        store_some(row + first, width - first, x);
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
