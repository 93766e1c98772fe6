// Classifies and lower-cases 64 ASCII characters at a time.
#pragma once

#include <cstdint>

#include "text/words/char_classes.h"

namespace encoder_engine {

struct ascii_masks {
    uint64_t letters = 0;  // bit i: character i; of what is not plain ASCII, all but `beyond` are 0
    uint64_t singles = 0;
    uint64_t spaces = 0;
    uint64_t starts = 0;   // beside one of the three
    uint64_t beyond = 0;   // not ASCII at all
};

// Reads `count` <= 64 characters, writes 64 bytes; of the masks only the first `count` bits mean
// something.
template <typename Char>
using classify_function = void (*)(const Char* text, int count, const char_classes& classes,
                                   uint8_t* lowered, ascii_masks& masks);

void classify_portable(const uint8_t* text, int count, const char_classes& classes, uint8_t* lowered,
                       ascii_masks& masks);
void classify_portable(const uint16_t* text, int count, const char_classes& classes, uint8_t* lowered,
                       ascii_masks& masks);
void classify_portable(const uint32_t* text, int count, const char_classes& classes, uint8_t* lowered,
                       ascii_masks& masks);
#if defined(__x86_64__)
void classify_avx2(const uint8_t* text, int count, const char_classes& classes, uint8_t* lowered,
                   ascii_masks& masks);
void classify_avx2(const uint16_t* text, int count, const char_classes& classes, uint8_t* lowered,
                   ascii_masks& masks);
void classify_avx2(const uint32_t* text, int count, const char_classes& classes, uint8_t* lowered,
                   ascii_masks& masks);
void classify_avx512(const uint8_t* text, int count, const char_classes& classes, uint8_t* lowered,
                     ascii_masks& masks);
void classify_avx512(const uint16_t* text, int count, const char_classes& classes, uint8_t* lowered,
                     ascii_masks& masks);
void classify_avx512(const uint32_t* text, int count, const char_classes& classes, uint8_t* lowered,
                     ascii_masks& masks);
#endif

}  // namespace encoder_engine
