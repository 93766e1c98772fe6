// Classifies and lower-cases 64 ASCII characters at a time.
#pragma once

#include <cstdint>

#include "text/char_classes.h"

namespace encoder_engine {

struct ascii_masks {
    uint64_t letters = 0;  // bit i: character i; all three are 0 for what is not plain ASCII
    uint64_t singles = 0;
    uint64_t spaces = 0;
    uint64_t starts = 0;   // beside one of the three
};

// Reads 64 bytes, writes 64.
using classify_function = void (*)(const uint8_t* text, const char_classes& classes,
                                   uint8_t* lowered, ascii_masks& masks);

void classify_portable(const uint8_t* text, const char_classes& classes, uint8_t* lowered,
                       ascii_masks& masks);
#if defined(__x86_64__)
void classify_avx2(const uint8_t* text, const char_classes& classes, uint8_t* lowered,
                   ascii_masks& masks);
void classify_avx512(const uint8_t* text, const char_classes& classes, uint8_t* lowered,
                     ascii_masks& masks);
#endif

}  // namespace encoder_engine
