// AdamW's step (Loshchilov and Hutter 2019) and sums of squares, a chunk of elements at a time.
#pragma once

#include "cpu/simd/norm_kernel.h"
#include "cpu/training/adamw.h"

namespace encoder_engine {
namespace EE_ISA {

EE_INLINE vfloat square_root(vfloat x) {
#if defined(__AVX512F__)
    return reinterpret_cast<vfloat>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(x)));
#elif defined(__AVX2__)
    return reinterpret_cast<vfloat>(_mm256_sqrt_ps(reinterpret_cast<__m256>(x)));
#else
    float lanes[kLanes];
    store(lanes, x);
    for (float& lane : lanes) lane = __builtin_sqrtf(lane);
    return load(lanes);
#endif
}

inline double sum_squares(const float* from, int64_t size) {
    row_sum sum;
    for_each_vector(size, [&](int64_t at, int part) EE_INLINED {
        const vfloat x = load_part(from, at, size);
        sum.parts[part] = sum.parts[part] + x * x;
    });
    double total = 0.0;
    for (const vfloat& part : sum.parts) {
        float lanes[kLanes];
        store(lanes, part);
        for (const float lane : lanes) total += static_cast<double>(lane);
    }
    return total;
}

inline void take_adamw_step(const adamw_call& call, const adamw_tensor& now) {
    for (int64_t at = 0; at < now.size; at += kLanes) {
        const vfloat g = load_part(now.gradient, at, now.size) * call.gradient_factor;
        vfloat first = load_part(now.first, at, now.size), second = load_part(now.second, at, now.size);
        first = first + (g - first) * call.new_first;
        second = second * call.beta2 + g * g * call.new_second;
        const vfloat size = square_root(second) * now.correction + call.epsilon;
        const vfloat x = load_part(now.parameter, at, now.size) * now.decay;
        store_part(now.parameter, at, now.size, x - first / size * now.learning_rate);
        store_part(now.first, at, now.size, first);
        store_part(now.second, at, now.size, second);
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
