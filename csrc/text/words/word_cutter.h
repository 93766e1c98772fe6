// Cuts words and their keys from bit masks of letters and single characters.
#pragma once

#include <cstdint>

#include "text/words/ascii_block.h"
#include "text/words/word_key.h"

namespace encoder_engine {

// The words of the next characters of a text: in bytes if all characters are ASCII, else in 16-bit units.
struct word_chunk {
    static constexpr int kCharacters = 1024;  // of the text, at most
    static constexpr int kUnits = 2 * kCharacters;
    static constexpr int kPadding = 64;      // readable and writable behind the last one

    static constexpr int kAhead = 8;         // readable behind the last key

    int consumed = 0;      // characters that the words and the gaps between them take
    bool blocked = false;  // what follows needs the character scanner
    int num_words = 0;
    uint16_t starts[kUnits + kPadding];  // per word, its first unit ...
    uint16_t sizes[kUnits + kPadding];   // ... and its units
    word_key keys[kUnits + kAhead] = {};  // of its first 16 bytes

    alignas(64) uint8_t bytes[kCharacters + kPadding];
    alignas(64) uint16_t units[kUnits + kPadding];
    // Per unit the character it came from, and behind the last one where the text goes on; of ASCII,
    // it is the same one.
    uint16_t sources[kUnits + kPadding];
};

// For each unit of a chunk: whether it is a letter, or a word of its own. One spare word of zeros
// follows.
struct unit_masks {
    uint64_t letters[word_chunk::kUnits / 64 + 1];
    uint64_t singles[word_chunk::kUnits / 64 + 1];
};

// Cuts the words of the first `count` units; the last word ends there.
template <typename Unit>
using cut_function = void (*)(unit_masks& masks, int count, const Unit* units, word_chunk& chunk);

// Writes the places of the bits of 64-bit words, and up to 63 values more; returns the end of the places.
using places_function = uint16_t* (*)(const uint64_t* bits, int num_words, uint16_t* out);

// The functions of scanning that depend on the processor.
struct scan_functions {
    classify_function<uint8_t> classify_1;
    classify_function<uint16_t> classify_2;
    classify_function<uint32_t> classify_4;
    cut_function<uint8_t> cut_bytes;
    cut_function<uint16_t> cut_units;
    places_function places;
    classify_function<uint8_t> classify(uint8_t) const { return classify_1; }
    classify_function<uint16_t> classify(uint16_t) const { return classify_2; }
    classify_function<uint32_t> classify(uint32_t) const { return classify_4; }
    cut_function<uint8_t> cut(uint8_t) const { return cut_bytes; }
    cut_function<uint16_t> cut(uint16_t) const { return cut_units; }
};

// The best implementations for the chosen instruction set.
scan_functions choose_scan_functions();

// Clears the bits after `count` units; returns the number of 64-bit words in use.
inline int clear_behind(unit_masks& masks, int count) {
    const int num_masks = (count + 63) >> 6;
    masks.letters[num_masks] = 0;
    if ((count & 63) != 0) {
        const uint64_t used = (1ull << (count & 63)) - 1;
        masks.letters[num_masks - 1] &= used;
        masks.singles[num_masks - 1] &= used;
    }
    return num_masks;
}

// The units with which words start and end, of 64; `before` is the letter bit ahead of them.
struct word_edges {
    uint64_t starts, ends;
    word_edges(const unit_masks& masks, int i, uint64_t before) {
        const uint64_t letters = masks.letters[i], singles = masks.singles[i];
        starts = (letters & ~(letters << 1 | before)) | singles;
        ends = (letters & ~(letters >> 1 | masks.letters[i + 1] << 63)) | singles;
    }
};

#if defined(__x86_64__)
void cut_bytes_avx512(unit_masks& masks, int count, const uint8_t* units, word_chunk& chunk);
void cut_units_avx512(unit_masks& masks, int count, const uint16_t* units, word_chunk& chunk);
uint16_t* write_places_avx512(const uint64_t* bits, int num_words, uint16_t* out);
#endif

}  // namespace encoder_engine
