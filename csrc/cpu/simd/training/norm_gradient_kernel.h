// Norms for training: statistics are kept, and gradients computed from the sum that was normalised.
#pragma once

#include "cpu/simd/norm_kernel.h"
#include "cpu/simd/training/dropout.h"
#include "cpu/training/row_gradients.h"

namespace encoder_engine {
namespace EE_ISA {

// `scratch`: two rows in float32, filled up to 64.
template <typename Input, typename Element>
void normalize_for_training(const norm_training_call& call, int64_t first_row, int64_t last_row,
                            float*, float* scratch) {
    const int64_t width = call.width;
    const dropout_rule rule(call.seed, call.dropout);
    float* const row_D = scratch;
    float* const factors = scratch + whole(width, 64);
    for (int64_t row = first_row; row < last_row; ++row) {
        const Input* const input = static_cast<const Input*>(call.input) + row * width;
        const Element* const residual =
            call.residual == nullptr ? nullptr : static_cast<const Element*>(call.residual) + row * width;
        Element* const summed = call.sum == nullptr ? nullptr : static_cast<Element*>(call.sum) + row * width;
        if (call.dropout > 0.0f) draw_features(rule, row, width, factors);
        row_sum sum;
        for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
            vfloat x = load_part(input, at, width);
            if (call.dropout > 0.0f) x = x * load(factors + at);
            if (residual != nullptr) x = x + load_part(residual, at, width);
            if (summed != nullptr) {
                // The backward pass reads the sum as it is stored.
                store_part(summed, at, width, x);
                x = rounded<Element>(x);
            }
            store(row_D + at, x);
            sum.parts[part] = sum.parts[part] + x;
        });
        const float mean = call.centred ? sum.total() / static_cast<float>(width) : 0.0f;
        const vfloat factor = centre_row(row_D, width, sum, call.centred, call.epsilon);
        float lanes[kLanes];
        store(lanes, factor);
        call.statistics[2 * row] = mean;
        call.statistics[2 * row + 1] = lanes[0];
        Element* const output = static_cast<Element*>(call.output) + row * width;
        for_each_vector(width, [&](int64_t at, int) EE_INLINED {
            store_part(output, at, width, normalized_part(row_D, at, width, factor, call.weight, call.bias));
        });
    }
}

// `partial`: [2, width filled up to 64], the chunk's gradients of weight and bias; `scratch` as above.
template <typename Input, typename Element, typename Summed>
void norm_gradient(const norm_gradient_call& call, int64_t first_row, int64_t last_row, float* partial,
                   float* scratch) {
    const int64_t width = call.width;
    const dropout_rule rule(call.seed, call.dropout);
    const vfloat share = broadcast(1.0f / static_cast<float>(width));
    float* const grad_weight = partial;
    float* const grad_bias = partial + whole(width, 64);
    // Stored and read again: a product fused with the difference below would leave its own rounding,
    // which a small deviation multiplies.
    float* const scaled_D = scratch + whole(width, 64);
    for (int64_t row = first_row; row < last_row; ++row) {
        const Summed* const x = static_cast<const Summed*>(call.summed) + row * width;
        const Element* const grad = static_cast<const Element*>(call.grad_output) + row * width;
        const vfloat mean = broadcast(call.statistics[2 * row]);
        const vfloat factor = broadcast(call.statistics[2 * row + 1]);
        row_sum plain, along;
        for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
            const vfloat g = load_part(grad, at, width);
            // Beyond the row grad is 0, and with it every term.
            const vfloat normal = (load_part(x, at, width) - mean) * factor;
            const vfloat scaled = g * load_part(call.weight, at, width);
            store(scaled_D + at, scaled);
            store(grad_weight + at, load(grad_weight + at) + g * normal);
            store(grad_bias + at, load(grad_bias + at) + g);
            plain.parts[part] = plain.parts[part] + scaled;
            along.parts[part] = along.parts[part] + scaled * normal;
        });
        const vfloat mean_grad = call.centred ? broadcast(plain.total()) * share : vfloat{};
        const vfloat mean_along = broadcast(along.total()) * share;
        if (call.dropout > 0.0f) draw_features(rule, row, width, scratch);
        const Element* const grad_sum =
            call.grad_sum == nullptr ? nullptr : static_cast<const Element*>(call.grad_sum) + row * width;
        Input* const grad_input =
            call.grad_input == nullptr ? nullptr : static_cast<Input*>(call.grad_input) + row * width;
        Element* const grad_residual =
            call.grad_residual == nullptr ? nullptr : static_cast<Element*>(call.grad_residual) + row * width;
        for_each_vector(width, [&](int64_t at, int) EE_INLINED {
            const vfloat normal = (load_part(x, at, width) - mean) * factor;
            vfloat g = (load(scaled_D + at) - mean_grad - normal * mean_along) * factor;
            if (grad_sum != nullptr) g = g + load_part(grad_sum, at, width);
            if (grad_residual != nullptr) store_part(grad_residual, at, width, g);
            if (grad_input == nullptr) return;
            if (call.dropout > 0.0f) g = g * load(scratch + at);
            store_part(grad_input, at, width, g);
        });
    }
}

template <typename Element>
void drop_features(const dropout_call& call, int64_t first_row, int64_t last_row, float*, float* scratch) {
    const dropout_rule rule(call.seed, call.dropout);
    for (int64_t row = first_row; row < last_row; ++row) {
        const Element* const input = static_cast<const Element*>(call.input) + row * call.width;
        Element* const output = static_cast<Element*>(call.output) + row * call.width;
        draw_features(rule, row, call.width, scratch);
        for (int64_t at = 0; at < call.width; at += kLanes) {
            store_part(output, at, call.width, load_part(input, at, call.width) * load(scratch + at));
        }
    }
}

// `partial`: [width filled up to 64].
template <typename Element>
void sum_columns(const column_sum_call& call, int64_t first_row, int64_t last_row, float* partial, float*) {
    for (int64_t row = first_row; row < last_row; ++row) {
        const Element* const input = static_cast<const Element*>(call.input) + row * call.stride;
        const vfloat factor = broadcast(call.factors == nullptr ? 1.0f : call.factors[row]);
        for (int64_t at = 0; at < call.width; at += kLanes) {
            store(partial + at, load(partial + at) + factor * load_part(input, at, call.width));
        }
    }
}

// to += factor * from, a row of a table's gradient.
inline void add_table_row(const float* from, float factor, float* to, int64_t width) {
    for (int64_t at = 0; at < width; at += kLanes) {
        store_part(to, at, width, load_part(to, at, width) + factor * load_part(from, at, width));
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
