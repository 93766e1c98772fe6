// A vector of float32 of the instruction set that is compiled for; the kernels are written once.
// Included only by the translation units kernels_<isa>.cpp, each of which defines EE_ISA: all code of an
// instruction set is in a namespace of that name, so that the linker never merges it with another's.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(EE_NEON)  // by the levels of arm64
#include <arm_neon.h>
#endif

// Products of pairs of bfloat16, neighbours in a 32-bit word.
#if defined(__AVX512BF16__) || (defined(EE_NEON) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC))
#define EE_BFLOAT16_PAIRS
#endif

// Products of matrices, of bytes and of bfloat16.
#if defined(EE_NEON) && defined(__ARM_FEATURE_MATMUL_INT8) && defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define EE_MMLA
#endif

#ifndef EE_ISA
#error "EE_ISA names the namespace of the instruction set"
#endif

#define EE_INLINE inline __attribute__((always_inline))
// Of a lambda: `[&](int64_t at) EE_INLINED { ... }`. Clang calls one that is used more than once, its sums pass
// through memory, and int8 products take 2.6 times as long. GCC inlines what pays: forced, it loses 5 % in int8.
#if defined(__clang__)
#define EE_INLINED __attribute__((always_inline))
#else
#define EE_INLINED
#endif
// A tile is not inlined, so that its sums stay in registers: GCC 12 spills them in a larger function.
#define EE_TILE __attribute__((noinline))

namespace encoder_engine {
namespace EE_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4;
constexpr int kRegisters = 32;
#else
constexpr int kLanes = 4;
constexpr int kRegisters = 16;
#endif

constexpr int kVectorBytes = 4 * kLanes;

using vfloat = float __attribute__((vector_size(kVectorBytes)));
using vword = uint32_t __attribute__((vector_size(kVectorBytes)));
using vint = int32_t __attribute__((vector_size(kVectorBytes)));

EE_INLINE vfloat as_float(vword x) { return reinterpret_cast<vfloat>(x); }
EE_INLINE vword as_word(vfloat x) { return reinterpret_cast<vword>(x); }

template <typename Vector = vfloat>
EE_INLINE Vector load(const void* from) {
    Vector x;
    std::memcpy(&x, from, sizeof(x));
    return x;
}
template <typename Vector>
EE_INLINE void store(void* to, Vector x) {
    std::memcpy(to, &x, sizeof(x));
}

// Prefetches a line to the L2 cache.
EE_INLINE void fetch_to_second_cache(const void* line) {
#if defined(__x86_64__)
    // In assembly: GCC 12 takes a function that only prefetches for one without effects, and drops its calls.
    __asm__ volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(line)));
#elif defined(__aarch64__)
    __asm__ volatile("prfm pldl2keep, %0" : : "Q"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 0, 2);
#endif
}

EE_INLINE vfloat broadcast(float x) { return x - vfloat{}; }
EE_INLINE vword broadcast(uint32_t x) { return x - vword{}; }

// The larger of a and b; b where either is NaN, as MAXPS does. GCC 12 would compare and select.
EE_INLINE vfloat larger(vfloat a, vfloat b) {
#if defined(__AVX512F__)
    return reinterpret_cast<vfloat>(_mm512_maskz_max_ps(0xffff, reinterpret_cast<__m512>(a),
                                                        reinterpret_cast<__m512>(b)));
#else
    return a > b ? a : b;
#endif
}
EE_INLINE vfloat smaller(vfloat a, vfloat b) {
#if defined(__AVX512F__)
    return reinterpret_cast<vfloat>(_mm512_maskz_min_ps(0xffff, reinterpret_cast<__m512>(a),
                                                        reinterpret_cast<__m512>(b)));
#else
    return a < b ? a : b;
#endif
}

template <typename T>
EE_INLINE constexpr T least(T a, T b) {
    return a < b ? a : b;
}

// 1 / x within 1.5 units in the last place, for x in [2^-126, 2^126].
EE_INLINE vfloat inverse(vfloat x) {
#if defined(__AVX512F__)
    // Division takes as long as 16 other steps.
    const vfloat near =
        reinterpret_cast<vfloat>(_mm512_maskz_rcp14_ps(0xffff, reinterpret_cast<__m512>(x)));
    return near + near * (1.0f - x * near);
#else
    return 1.0f / x;
#endif
}

// 2^x for x < 128, within 1.2 units in the last place; NaN for NaN. 0 below 2^-100: products with
// smaller factors soon become denormal, and each such product takes 100 times as long.
EE_INLINE vfloat exp2(vfloat x) {
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    const vfloat magic = broadcast(12582912.0f);
    const vfloat shifted = x + magic;
    const vfloat rest = x - (shifted - magic);
    // Minimax of 2^f on [-1/2, 1/2]: relative error 2e-9.
    vfloat y = broadcast(1.5345812e-4f);
    y = y * rest + 1.3399932e-3f;
    y = y * rest + 9.6184891e-3f;
    y = y * rest + 5.5503286e-2f;
    y = y * rest + 2.4022646e-1f;
    y = y * rest + 6.9314718e-1f;
    y = y * rest + 1.0f;
    const vfloat power = as_float(as_word(y) + (as_word(shifted) << 23));
    return x < -100.0f ? vfloat{} : power;
}

// The numbers of the lanes, as a type.
template <int... Lane>
struct lanes {};
template <int Count, int... Lane>
struct count_lanes : count_lanes<Count - 1, Count - 1, Lane...> {};
template <int... Lane>
struct count_lanes<0, Lane...> {
    using type = lanes<Lane...>;
};
using all_lanes = count_lanes<kLanes>::type;

// A number as a type, so that a loop's body is compiled for that number of iterations.
template <int Value>
struct number {
    static constexpr int value = Value;
};

// Calls `body` with number<count>, 1 <= count <= Most.
template <int Most, typename Body>
EE_INLINE void with_number(int count, const Body& body) {
    if (count == Most) {
        body(number<Most>{});
    } else if constexpr (Most > 1) {
        with_number<Most - 1>(count, body);
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
