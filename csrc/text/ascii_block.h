// Classifies 64 ASCII characters at a time into letters, words of one, and white space.
#pragma once

#include <cstdint>

#include "text/char_table.h"

namespace encoder_engine {

// What each ASCII character is for the block scanner; derived from the character table.
struct ascii_classes {
    static constexpr uint8_t kLetter = 1;  // part of a word; becomes one ASCII letter
    static constexpr uint8_t kSingle = 2;  // punctuation: a word of its own
    static constexpr uint8_t kSpace = 4;
    static constexpr uint8_t kUpper = 8;   // a letter that 0x20 is added to

    // By byte; 0 for what only the character scanner can handle: bytes above 127, dropped
    // characters, those an added token starts with.
    alignas(64) uint8_t flags[256] = {};
    alignas(64) uint8_t lowered[256] = {};
    // Per class and low nibble, a bit for each high nibble whose character is in the class: with
    // two byte shuffles, a test for any set of ASCII characters.
    alignas(16) uint8_t nibbles[4][16] = {};

    explicit ascii_classes(const char_table& table);
};

struct ascii_block {
    uint64_t letters = 0;  // bit i: character i
    uint64_t singles = 0;
    uint64_t spaces = 0;
    alignas(64) uint8_t lowered[64 + 16];  // 16 bytes can be read from any position
};

// Reads 64 bytes.
using classify_function = void (*)(const uint8_t* text, const ascii_classes& classes,
                                   ascii_block& block);

// The best implementation for the chosen instruction set.
classify_function choose_classify();

void classify_portable(const uint8_t* text, const ascii_classes& classes, ascii_block& block);
#if defined(__x86_64__)
void classify_avx2(const uint8_t* text, const ascii_classes& classes, ascii_block& block);
void classify_avx512(const uint8_t* text, const ascii_classes& classes, ascii_block& block);
#endif

}  // namespace encoder_engine
