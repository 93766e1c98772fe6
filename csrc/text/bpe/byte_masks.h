// The classes of 64 bytes of UTF-8 as bit masks.
#pragma once

#include <cstdint>

namespace encoder_engine {

// The class of a character, as a bit each; 0: any other character.
enum byte_class : uint8_t {
    kLetterClass = 1,   // \p{L}
    kNumberClass = 2,   // \p{N}
    kSpaceClass = 4,    // \s
    kBlankClass = 8,    // U+0020
    kNewlineClass = 16, // CR and LF
    kQuoteClass = 32,   // the apostrophe
    kNulClass = 64,
};

struct class_masks {
    uint64_t letters, numbers, spaces, blanks, newlines, quotes, nuls;
    uint64_t beyond;     // bytes of characters that are not ASCII
    uint64_t inner;      // ... less the first byte of each
};

// Reads 64 bytes and, for those that are not ASCII, their classes. `ascii` has 128 classes.
using mask_function = void (*)(const uint8_t* bytes, const uint8_t* classes, const uint8_t* ascii,
                               class_masks& masks);

void read_masks_portable(const uint8_t* bytes, const uint8_t* classes, const uint8_t* ascii,
                         class_masks& masks);
#if defined(__x86_64__)
void read_masks_avx2(const uint8_t* bytes, const uint8_t* classes, const uint8_t* ascii,
                     class_masks& masks);
void read_masks_avx512(const uint8_t* bytes, const uint8_t* classes, const uint8_t* ascii,
                       class_masks& masks);
#endif

// The best implementation for the chosen instruction set.
mask_function choose_mask_function();

}  // namespace encoder_engine
