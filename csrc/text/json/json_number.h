// Numbers of a JSON file as `tokenizers` reads them.
#pragma once

#include <cstddef>

namespace encoder_engine {

// Reads a JSON number as serde_json does without its feature float_roundtrip: the first digits as a
// 64-bit integer, rounded to a double, scaled by a power of ten. From 17 digits on the result may
// differ from the nearest double, which decides between paths of equal sums.
double read_json_number(const char* text, size_t size);

}  // namespace encoder_engine
