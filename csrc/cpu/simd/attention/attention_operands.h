// The operands of attention's products: float32, or, with instructions for them, pairs of bfloat16 in
// 32-bit words, neighbours along the dimension that is summed over.
#pragma once

#include "cpu/simd/element_vector.h"
#include "cpu/simd/tile.h"

namespace encoder_engine {
namespace EE_ISA {

template <typename Element_>
struct float_operands : whole_words {
    using Element = Element_;
    static constexpr int kDepth = 1;  // elements in a word

    EE_INLINE static vfloat broadcast_word(const float* from) { return broadcast(*from); }
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) { return a * b + sum; }
#if defined(EE_NEON)
    // sum + a[Lane] * b.
    template <int Lane>
    EE_INLINE static vfloat multiply_lane(vfloat a, vfloat b, vfloat sum) {
        return vfmaq_laneq_f32(sum, b, a, Lane);
    }
#endif

    // The words [first, first + kLanes) of a row of `width` elements, zeros beyond it.
    EE_INLINE static vfloat load_words(const Element* row, int64_t first, int64_t width) {
        return load_part(row, first, width);
    }
    // A word for each lane out of `count` <= kDepth rows, zeros where there is no row.
    EE_INLINE static vfloat load_across(const Element* rows, int64_t, int64_t, int64_t first,
                                        int64_t width) {
        return load_part(rows, first, width);
    }
    EE_INLINE static vfloat join(const vfloat (&weights)[kDepth]) { return weights[0]; }
};

#if defined(EE_BFLOAT16_PAIRS)

struct pair_operands : packed_words {
    using Element = bfloat16;
    static constexpr int kDepth = 2;

#if defined(EE_NEON)
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) {
        return vbfdotq_f32(sum, reinterpret_cast<bfloat16x8_t>(b), reinterpret_cast<bfloat16x8_t>(a));
    }
    template <int Lane>
    EE_INLINE static vfloat multiply_lane(vfloat a, vfloat b, vfloat sum) {
        // In assembly: for the built-in, Clang 22 copies the lane to a vector, and runs out of registers.
        __asm__("bfdot %0.4s, %1.8h, %2.2h[%c3]" : "+w"(sum) : "w"(b), "w"(a), "i"(Lane));
        return sum;
    }
#else
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) {
        return reinterpret_cast<vfloat>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum),
                                                         reinterpret_cast<__m512bh>(a),
                                                         reinterpret_cast<__m512bh>(b)));
    }
#endif

    EE_INLINE static vfloat load_words(const bfloat16* row, int64_t first, int64_t width) {
        const int64_t left = width - kDepth * first;
        if (left >= kDepth * kLanes) return load(row + kDepth * first);
        bfloat16 whole[kDepth * kLanes] = {};
        std::memcpy(whole, row + kDepth * first, static_cast<size_t>(left) * sizeof(bfloat16));
        return load(whole);
    }
    EE_INLINE static vfloat load_across(const bfloat16* rows, int64_t stride, int64_t count,
                                        int64_t first, int64_t width) {
        const vword low = as_word(load_part(rows, first, width));
        const vword high = count > 1 ? as_word(load_part(rows + stride, first, width)) : vword{};
        return as_float(low >> 16 | high);
    }
    EE_INLINE static vfloat join(const vfloat (&weights)[kDepth]) {
        // p is positive and at most 1: adding half a unit rounds to the nearest.
        const vword low = as_word(weights[0]) + 0x8000u, high = as_word(weights[1]) + 0x8000u;
        return as_float(low >> 16 | (high & 0xffff0000u));
    }
    // Keeps the compiler from fusing score * scale - max into one FMA. The maximum is one of rounded
    // products, so that a rounded product less it is at most 0; the exact product may exceed it (by
    // up to 2^9 at 1e10), and exp2 would overflow.
    EE_INLINE static vfloat rounded(vfloat x) {
#if defined(EE_NEON)
        __asm__("" : "+w"(x));
#else
        __asm__("" : "+v"(x));
#endif
        return x;
    }
    // 2^x for x <= 0, to be rounded to bfloat16: relative error 7.5e-5; 0 below 2^-100; NaN for NaN.
    EE_INLINE static vfloat exp2(vfloat x) {
#if defined(EE_NEON)
        const vfloat floor = vrndmq_f32(x);
        const vword exponent = reinterpret_cast<vword>(vcvtq_s32_f32(floor)) << 23;
        const vfloat power = as_float(as_word(exp2_of_rest(x - floor)) + exponent);
        return x < -100.0f ? vfloat{} : power;
#else
        const auto power = reinterpret_cast<__m512>(x);
        const __mmask16 kept = _mm512_cmp_ps_mask(power, _mm512_set1_ps(-100.0f), _CMP_NLT_UQ);
        constexpr int kFloor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
        // x - floor(x).
        const auto rest = reinterpret_cast<vfloat>(_mm512_maskz_reduce_ps(kept, power, kFloor));
        return reinterpret_cast<vfloat>(
            _mm512_maskz_scalef_ps(kept, reinterpret_cast<__m512>(exp2_of_rest(rest)), power));
#endif
    }

private:
    // The minimax of 2^f on [0, 1].
    EE_INLINE static vfloat exp2_of_rest(vfloat rest) {
        vfloat y = rest * 7.8024523e-2f + 2.2606717e-1f;
        y = y * rest + 6.9583354e-1f;
        return y * rest + 9.9992521e-1f;
    }
};

#endif

}  // namespace EE_ISA
}  // namespace encoder_engine
