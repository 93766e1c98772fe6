// Running largest logit and sum of exponentials of a row, for a softmax whose row is never whole.
#pragma once

#include "cpu/rows.h"
#include "cpu/simd/element_vector.h"

namespace encoder_engine {
namespace EE_ISA {

template <typename Element>
void add_softmax_sums(const softmax_sum_call& call, int64_t first_row, int64_t last_row, float*) {
    const int64_t width = call.width;
    const auto part = [&](const Element* row, int64_t at) EE_INLINED {
        if (at + kLanes <= width) return load_elements(row + at);
        float lanes[kLanes];
        store(lanes, load_some(row + at, width - at));
        for (int64_t lane = width - at; lane < kLanes; ++lane) lanes[lane] = -__builtin_inff();
        return load(lanes);
    };
    const auto has_nan = [&](const Element* row) EE_INLINED {
        vint found = {};
        for (int64_t at = 0; at < width; at += kLanes) {
            const vfloat x = part(row, at);
            found |= x != x;
        }
        int32_t lanes[kLanes], any = 0;
        store(lanes, found);
        for (const int32_t lane : lanes) any |= lane;
        return any != 0;
    };
    for (int64_t row = first_row; row < last_row; ++row) {
        const Element* const input = static_cast<const Element*>(call.input) + row * width;
        vfloat most = broadcast(-__builtin_inff());
        for (int64_t at = 0; at < width; at += kLanes) most = larger(most, part(input, at));
        float lanes[kLanes];
        store(lanes, most);
        float largest = call.largest[row];
        for (int lane = 0; lane < kLanes; ++lane) largest = lanes[lane] > largest ? lanes[lane] : largest;
        if (!(largest > -__builtin_inff())) {
            // Logits of -infinity add nothing; the maximum does not tell them from NaN.
            if (has_nan(input)) call.sum[row] = __builtin_nanf("");
            continue;
        }
        const float log2_e = 1.44269504f;
        vfloat sums[2] = {};
        int64_t number = 0;
        for (int64_t at = 0; at < width; at += kLanes, ++number) {
            vfloat& sum = sums[number % 2];
            // exp2 is 0 below -100, and NaN of an infinity less itself.
            sum = sum + exp2(larger(broadcast(-126.0f), (part(input, at) - largest) * log2_e));
        }
        store(lanes, sums[0] + sums[1]);
        for (int half = kLanes / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        }
        const vfloat shift = broadcast((call.largest[row] - largest) * log2_e);
        float kept[kLanes];
        store(kept, exp2(larger(broadcast(-126.0f), shift)));
        call.sum[row] = call.sum[row] * kept[0] + lanes[0];
        call.largest[row] = largest;
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
