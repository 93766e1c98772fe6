// Conversions of numbers, for loading weights: element types, largest magnitude, 8-bit integers.
#pragma once

#include <cstdint>

#include "cpu/element.h"

namespace encoder_engine {

// The number types of weights in files.
enum class number_type { float64, float32, float16, bfloat16 };

void widen(const bfloat16* input, float* output, int64_t count, int num_threads);

// Rounds to the nearest, ties to even; denormals stay, and NaN becomes the quiet NaN 0x7fc0.
void narrow(const float* input, bfloat16* output, int64_t count, int num_threads);

// The largest magnitude of `count` numbers, 0 for none; NaN where one is NaN, else infinity where
// one is infinite.
double largest_magnitude(number_type type, const void* input, int64_t count, int num_threads);

// output = round(weight / scale), ties to even, scale = largest magnitude / 127, for each row. A row
// without a magnitude above 2^-100 has scale 1; one with an infinity or NaN has scale NaN and zeros.
void quantize_weight(element_type type, const void* weight, int64_t num_rows, int64_t width,
                     int8_t* output, float* scales, int num_threads);

}  // namespace encoder_engine
