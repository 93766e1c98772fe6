// Cuts some hundred characters at a time into normalized words.
#pragma once

#include <cstdint>

#include "text/ascii_block.h"
#include "text/char_classes.h"
#include "text/word_key.h"

namespace encoder_engine {

// The words of the next characters of a text: bytes where all of them are ASCII, else 16-bit units.
struct word_chunk {
    static constexpr int kCharacters = 256;  // of the text, at most
    static constexpr int kUnits = 2 * kCharacters;
    static constexpr int kPadding = 64;      // readable behind the last unit

    int consumed = 0;      // characters that the words and the gaps between them take
    bool blocked = false;  // what follows needs the character scanner
    int num_words = 0;
    uint16_t starts[kUnits + kPadding];  // per word, its first unit ...
    uint16_t sizes[kUnits + kPadding];   // ... and its units
    word_key keys[kUnits];               // of words of at most 16 bytes

    alignas(64) uint8_t bytes[kCharacters + kPadding];
    uint16_t units[kUnits + kPadding];
    // Per unit the character it came from; of ASCII, it is the same one.
    uint16_t sources[kUnits + kPadding];
};

// What a chunk is cut from: the rest of a text, from a place between words.
template <typename Char>
struct text_rest {
    const Char* text;
    int64_t length;
};

// Takes up to `count` <= kCharacters characters, all of them ASCII. The last word is left for the
// next chunk unless the text ends behind it; so is all from a blocking character's word on.
template <typename Char>
void scan_ascii(const text_rest<Char>& rest, int count, const char_classes& classes,
                classify_function classify, word_chunk& chunk);

// The same for any characters.
template <typename Char>
void scan_wide(const text_rest<Char>& rest, const char_classes& classes, word_chunk& chunk);

}  // namespace encoder_engine
