// Numbers of a JSON file as `tokenizers` reads them.
#pragma once

#include <cstddef>

namespace encoder_engine {

// The double that serde_json makes of a JSON number when not told to be exact: the digits as an
// integer of 64 bits, those beyond dropped, rounded to a double, and that scaled by a power of ten.
// From 17 digits on it may lie beside the nearest one, which decides between paths of equal sums.
double read_json_number(const char* text, size_t size);

}  // namespace encoder_engine
