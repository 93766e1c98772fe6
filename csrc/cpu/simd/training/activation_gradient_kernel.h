// The gradients of bias, activation and gate.
#pragma once

#include "cpu/simd/activation_kernel.h"
#include "cpu/training/row_gradients.h"

namespace encoder_engine {
namespace EE_ISA {

// A function's value and derivative.
struct with_slope {
    vfloat value, slope;
};

// x Phi(x) and Phi(x) + x phi(x), as gelu(): 1 - Phi(a) is exp(-a^2/2) t P(t).
EE_INLINE with_slope gelu_with_slope(vfloat x) {
    const vfloat a = smaller(broadcast(16.0f), magnitude(x));
    const vfloat t = inverse(a * 0.27f + 1.0f);
    vfloat beyond = t * 2.9037874e-2f - 1.2687154e-1f;
    beyond = beyond * t + 1.7061171e-1f;
    beyond = beyond * t - 7.0191927e-2f;
    beyond = beyond * t + 1.0853191e-1f;
    beyond = beyond * t + 7.1735166e-2f;
    beyond = beyond * t + 1.0189492e-1f;
    beyond = beyond * t + 1.0753046e-1f;
    beyond = beyond * t + 1.0772143e-1f;
    const vfloat density = exp2(a * a * -0.72134752f);
    beyond = beyond * t * density;
    const vfloat share = x < 0.0f ? beyond : 1.0f - beyond;
    return {larger(vfloat{}, x) - a * beyond, share + (x < 0.0f ? -a : a) * density * 0.39894228f};
}

EE_INLINE with_slope gelu_tanh_with_slope(vfloat x) {
    // The logistic function of z: its slope is z' s (1 - s).
    const vfloat square = x * x, z = x * (square * 0.10294324f + 2.3022082f);
    const vfloat power = exp2(smaller(broadcast(125.0f), -z));
    const vfloat share = z < -125.0f ? vfloat{} : inverse(power + 1.0f);
    const vfloat slope = (square * (3.0f * 0.10294324f) + 2.3022082f) * 0.69314718f;
    const vfloat rest = share * (1.0f - share);
    return {x * share, share + x * slope * rest};
}

EE_INLINE with_slope silu_with_slope(vfloat x) {
    const vfloat z = x * 1.44269504f;
    const vfloat power = exp2(smaller(broadcast(125.0f), -z));
    const vfloat share = z < -125.0f ? vfloat{} : inverse(power + 1.0f);
    return {x * share, share + x * share * (1.0f - share)};
}

// Calls body with a function that returns with_slope.
template <typename Body>
EE_INLINE void with_derivative(activation function, const Body& body) {
    switch (function) {
        case activation::gelu: return body([](vfloat x) EE_INLINED { return gelu_with_slope(x); });
        case activation::gelu_tanh: return body([](vfloat x) EE_INLINED { return gelu_tanh_with_slope(x); });
        case activation::silu: return body([](vfloat x) EE_INLINED { return silu_with_slope(x); });
        default: return;
    }
}

// `partial`: [width of the input filled up to 64], the chunk's gradient of the bias.
template <typename Element>
void activation_gradient(const activation_gradient_call& call, int64_t first_row, int64_t last_row,
                         float* partial, float*) {
    const int64_t width = call.width, input_width = call.gated ? 2 * width : width;
    const Element* const bias = static_cast<const Element*>(call.bias);
    const auto add = [&](int64_t at, vfloat x) EE_INLINED {
        // The two halves may meet within a vector.
        store_part(partial, at, at < width ? least(at + kLanes, width) : input_width,
                   load_part(partial, at, at < width ? least(at + kLanes, width) : input_width) + x);
    };
    with_derivative(call.function, [&](const auto& function) {
        for (int64_t row = first_row; row < last_row; ++row) {
            const Element* const input = static_cast<const Element*>(call.input) + row * input_width;
            const Element* const grad = static_cast<const Element*>(call.grad_output) + row * width;
            Element* const output = static_cast<Element*>(call.grad_input) + row * input_width;
            for (int64_t at = 0; at < width; at += kLanes) {
                const auto half = [&](int64_t from) EE_INLINED {
                    const vfloat x = load_part(input + from, at, width);
                    return bias == nullptr ? x : x + load_part(bias + from, at, width);
                };
                const vfloat g = load_part(grad, at, width);
                const with_slope found = function(half(0));
                vfloat first = g * found.slope;
                if (call.gated) {
                    first = first * half(width);
                    const vfloat second = g * found.value;
                    store_part(output + width, at, width, second);
                    if (call.grad_bias != nullptr) add(width + at, second);
                }
                store_part(output, at, width, first);
                if (call.grad_bias != nullptr) add(at, first);
            }
        }
    });
}

}  // namespace EE_ISA
}  // namespace encoder_engine
