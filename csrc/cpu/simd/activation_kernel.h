// Bias, activation and gate of rows, and their sums.
#pragma once

#include "cpu/simd/element_vector.h"
#include "cpu/rows.h"

namespace encoder_engine {
namespace EE_ISA {

EE_INLINE vfloat magnitude(vfloat x) { return as_float(as_word(x) & 0x7fffffffu); }

// GELU: x * Phi(x), Phi: the normal distribution function. With a = |x|, 1 - Phi(a) is exp(-a^2/2)
// t P(t), t = 1 / (1 + 0.27 a): P fitted for a relative error of 2.4e-8 on 0 <= a <= 16.
EE_INLINE vfloat gelu(vfloat x) {
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
    beyond = beyond * t * exp2(a * a * -0.72134752f);
    return larger(vfloat{}, x) - a * beyond;
}

// GELU for results that are rounded to bytes or bfloat16, in two thirds of the time of gelu(). Its
// error is at most 2.5e-7 * max(1, |x|), less than that of the formula with 1 + erf. Phi(x) - 1/2
// is x times a ratio of polynomials of x^2, fitted on |x| <= 5.2.
EE_INLINE vfloat gelu_to_round(vfloat x) {
    const vfloat limit = broadcast(5.2f);
    const vfloat near = larger(-limit, smaller(limit, x));
    const vfloat u = near * near;
    vfloat over = u * 2.4625417e-8f + 6.4192907e-6f;
    over = over * u + 1.5828824e-4f;
    over = over * u + 4.6170412e-3f;
    over = over * u + 3.2682488e-2f;
    over = over * u + 3.9894224e-1f;
    vfloat under = u * 1.2566775e-6f + 7.0966839e-5f;
    under = under * u + 1.8251159e-3f;
    under = under * u + 2.8005602e-2f;
    under = under * u + 2.4858896e-1f;
    under = under * u + 1.0f;
    const vfloat share = near * over * inverse(under) + 0.5f;
    return x < -limit ? vfloat{} : x * share;
}

// x * sigmoid, with sigmoid = 1 / (1 + 2^-z); 0 for z < -125, where 2^-z nears the largest float32.
EE_INLINE vfloat share_of(vfloat x, vfloat z) {
    const vfloat share = x * inverse(exp2(smaller(broadcast(125.0f), -z)) + 1.0f);
    return z < -125.0f ? vfloat{} : share;
}

// x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), as a logistic function.
EE_INLINE vfloat gelu_tanh(vfloat x) {
    return share_of(x, x * (x * x * 0.10294324f + 2.3022082f));
}

EE_INLINE vfloat silu(vfloat x) { return share_of(x, x * 1.44269504f); }

EE_INLINE vfloat relu(vfloat x) { return larger(vfloat{}, x); }

// tanh: near 0, where 1 - e would cancel, x plus x^3 times a polynomial of x^2 (Cephes' tanhf).
EE_INLINE vfloat tanh(vfloat x) {
    const vfloat a = magnitude(x), square = x * x;
    vfloat beyond = square * -5.70498872745e-3f + 2.06390887954e-2f;
    beyond = beyond * square - 5.37397155531e-2f;
    beyond = beyond * square + 1.33314422036e-1f;
    beyond = beyond * square - 3.33332819422e-1f;
    const vfloat near = x + x * square * beyond;
    const vfloat e = exp2(a * -2.88539008f);
    const vfloat share = (1.0f - e) * inverse(1.0f + e);
    const vfloat far = as_float(as_word(share) | (as_word(x) & 0x80000000u));
    return a < 0.625f ? near : far;
}

struct identity {
    EE_INLINE vfloat operator()(vfloat x) const { return x; }
};

// Calls body(f) with the activation function f, computed as exactly as Element can represent.
template <typename Element, typename Body>
EE_INLINE void with_activation(activation function, const Body& body) {
    switch (function) {
        case activation::none: return body(identity{});
        case activation::gelu:
            return body([](vfloat x) EE_INLINED { return sizeof(Element) == 2 ? gelu_to_round(x) : gelu(x); });
        case activation::gelu_tanh: return body([](vfloat x) EE_INLINED { return gelu_tanh(x); });
        case activation::silu: return body([](vfloat x) EE_INLINED { return silu(x); });
        case activation::relu: return body([](vfloat x) EE_INLINED { return relu(x); });
        case activation::tanh: return body([](vfloat x) EE_INLINED { return tanh(x); });
    }
}

template <typename Element, typename Function>
EE_INLINE void activate(const activation_call& call, int64_t first_row, int64_t last_row,
                        const Function& function) {
    const int64_t width = call.width, input_width = call.gated ? 2 * width : width;
    const Element* const bias = static_cast<const Element*>(call.bias);
    for (int64_t row = first_row; row < last_row; ++row) {
        const Element* const input = static_cast<const Element*>(call.input) + row * input_width;
        Element* const output = static_cast<Element*>(call.output) + row * width;
        for (int64_t at = 0; at < width; at += kLanes) {
            const auto half = [&](int64_t from) EE_INLINED {
                const vfloat x = load_part(input + from, at, width);
                return bias == nullptr ? x : x + load_part(bias + from, at, width);
            };
            vfloat y = function(half(0));
            if (call.gated) y = y * half(width);
            store_part(output, at, width, y);
        }
    }
}

template <typename Element>
void activate_rows(const activation_call& call, int64_t first_row, int64_t last_row, float*) {
    with_activation<Element>(call.function, [&](const auto& function) {
        activate<Element>(call, first_row, last_row, function);
    });
}

template <typename Element>
void add_rows(const sum_call& call, int64_t first_row, int64_t last_row, float*) {
    const int64_t first = first_row * call.width, count = last_row * call.width - first;
    const Element* const input = static_cast<const Element*>(call.input) + first;
    const Element* const other = static_cast<const Element*>(call.other) + first;
    Element* const output = static_cast<Element*>(call.output) + first;
    for (int64_t at = 0; at < count; at += kLanes) {
        store_part(output, at, count, load_part(input, at, count) + load_part(other, at, count));
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
