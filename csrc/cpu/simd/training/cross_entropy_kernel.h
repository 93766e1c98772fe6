// The statistics of rows of logits, and the gradient of their cross-entropy in place of them.
#pragma once

#include "cpu/simd/norm_kernel.h"
#include "cpu/training/row_gradients.h"

namespace encoder_engine {
namespace EE_ISA {

// A row's vector; `rest` in the lanes beyond it.
template <typename Element>
EE_INLINE vfloat logits_part(const Element* row, int64_t at, int64_t width, float rest) {
    if (at + kLanes <= width) return load_elements(row + at);
    float lanes[kLanes];
    store(lanes, load_some(row + at, width - at));
    for (int64_t lane = width - at; lane < kLanes; ++lane) lanes[lane] = rest;
    return load(lanes);
}

template <typename Element>
EE_INLINE float logit_at(const Element* row, int64_t at) {
    float lanes[kLanes];
    store(lanes, load_some(row + at, 1));
    return lanes[0];
}

// The largest logit; NaN where one is.
template <typename Element>
EE_INLINE float largest_logit(const Element* row, int64_t width) {
    vfloat most = broadcast(-__builtin_inff());
    vint has_nan = {};
    for (int64_t at = 0; at < width; at += kLanes) {
        const vfloat x = logits_part(row, at, width, -__builtin_inff());
        most = larger(most, x);
        has_nan |= x != x;
    }
    float lanes[kLanes], largest = -__builtin_inff();
    int32_t found[kLanes], any = 0;
    store(lanes, most);
    store(found, has_nan);
    for (int lane = 0; lane < kLanes; ++lane) {
        largest = lanes[lane] > largest ? lanes[lane] : largest;
        any |= found[lane];
    }
    return any != 0 ? __builtin_nanf("") : largest;
}

// The first of the largest logits.
template <typename Element>
int64_t find_logit(const Element* row, int64_t width, float value) {
    for (int64_t at = 0; at < width; at += kLanes) {
        const vint equal = logits_part(row, at, width, -__builtin_inff()) == value;
        int32_t lanes[kLanes];
        store(lanes, equal);
        for (int64_t lane = 0; lane < least<int64_t>(kLanes, width - at); ++lane) {
            if (lanes[lane] != 0) return at + lane;
        }
    }
    return 0;
}

template <typename Element>
void cross_entropy_rows(const cross_entropy_call& call, int64_t first_row, int64_t last_row, float*, float*) {
    constexpr float kLog2e = 1.44269504f, kLn2 = 0.69314718f;
    const int64_t width = call.vocabulary;
    const float infinity = __builtin_inff();
    for (int64_t row = first_row; row < last_row; ++row) {
        Element* const logits = static_cast<Element*>(call.logits) + row * width;
        const float largest = largest_logit(logits, width);
        // An infinite maximum less itself would be NaN.
        const float shift = largest > -infinity && largest < infinity ? largest : 0.0f;
        row_sum powers, plain;
        for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
            const vfloat x = logits_part(logits, at, width, -infinity);
            powers.parts[part] = powers.parts[part] + exp2(smaller(broadcast(127.9f), (x - shift) * kLog2e));
            if (call.label_smoothing > 0.0f) {
                plain.parts[part] = plain.parts[part] + logits_part(logits, at, width, 0.0f);
            }
        });
        float lse = shift + kLn2 * __builtin_log2f(powers.total());
        if (!(largest < infinity)) lse = largest;
        const int64_t label = call.labels[row];
        const bool counts = label >= 0 && label < width;
        call.lse[row] = lse;
        call.label_logits[row] = counts ? logit_at(logits, label) : __builtin_nanf("");
        call.logit_sums[row] = plain.total();
        if (call.predictions != nullptr) call.predictions[row] = find_logit(logits, width, largest);
        if (!call.keeps_gradient) continue;
        const vfloat factor = broadcast(1.0f + 2.0f * call.z_loss * lse);
        const vfloat taken = broadcast(call.label_smoothing / static_cast<float>(width));
        const float at_label =
            counts ? __builtin_exp2f((logit_at(logits, label) - lse) * kLog2e) * (1.0f + 2.0f * call.z_loss * lse) -
                         call.label_smoothing / static_cast<float>(width) + (call.label_smoothing - 1.0f)
                   : 0.0f;
        for (int64_t at = 0; at < width; at += kLanes) {
            const vfloat p = exp2((load_part(logits, at, width) - lse) * kLog2e);
            store_part(logits, at, width, p * factor - taken);
        }
        if (counts) store_some(logits + label, 1, broadcast(at_label));
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
