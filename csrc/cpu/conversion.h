// Conversions of rows and weights: bfloat16 to float32, weights to 8-bit integers.
#pragma once

#include <cstdint>

#include "cpu/element.h"

namespace encoder_engine {

void widen(const bfloat16* input, float* output, int64_t count, int num_threads);

// output = round(weight / scale), ties to even, scale = largest magnitude / 127, for each row. A row
// without a magnitude above 2^-100 has scale 1; one with an infinity or NaN has scale NaN and zeros.
void quantize_weight(element_type type, const void* weight, int64_t num_rows, int64_t width,
                     int8_t* output, float* scales, int num_threads);

}  // namespace encoder_engine
