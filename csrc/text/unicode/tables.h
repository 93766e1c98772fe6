// The generated Unicode tables and the lookups on them; slow, for building faster tables only.
#pragma once

#include <cstdint>

namespace encoder_engine {

// Flags of unicode_properties(); the generator writes the same values.
enum unicode_flag : uint32_t {
    kUnicodeWhitespace = 1,   // White_Space
    kUnicodeRemoved = 2,      // dropped by cleaning: Cc, Cf, Co of Unicode 8.0, and U+FFFD
    kUnicodePunctuation = 4,  // P* of Unicode 8.0 and the ASCII symbols
    kUnicodeMark = 8,         // Mn of Unicode 8.0
    kUnicodeWord = 16,        // \w of the regex crate
    kUnicodeAnyMark = 32,     // M* of Unicode 9.0
};

// Values of unicode_category(): \p{L} and \p{N} of the library's regular expressions, Unicode 16.0, and
// the numbers of 17.0, which are digits to its Digits alone.
enum unicode_category_value : uint32_t {
    kUnicodeOther = 0,
    kUnicodeLetter = 1,
    kUnicodeNumber = 2,
    kUnicodeLaterNumber = 3,
};

constexpr uint32_t kUnicodeEnd = 0x110000;
constexpr uint32_t kHangulFirst = 0xAC00;
constexpr uint32_t kHangulEnd = 0xD7A4;
constexpr int kMaxDecomposition = 4;
constexpr int kMaxCompatibility = 18;  // U+FDFA

struct composition {
    uint32_t first;
    uint32_t second;
    uint32_t composed;
};

struct lowercase_run {
    uint32_t first;
    uint32_t last;
    uint32_t step;
    int32_t distance;
};

// Each run is (first code point << 8 | value), up to the next run.
extern const uint32_t unicode_property_runs[];
extern const int unicode_property_runs_count;
extern const uint32_t unicode_category_runs[];
extern const int unicode_category_runs_count;
extern const uint32_t unicode_combining_runs[];
extern const int unicode_combining_runs_count;
extern const lowercase_run unicode_lowercase_runs[];
extern const int unicode_lowercase_runs_count;
// Code point << 24 | the one code point it decomposes to.
extern const uint64_t unicode_singletons[];
extern const int unicode_singletons_count;
// Length << 24 | code point, then as many code points; ascending.
extern const uint32_t unicode_decompositions[];
extern const int unicode_decompositions_count;

// The same where the compatibility decomposition is another.
extern const uint32_t unicode_compatibility[];
extern const int unicode_compatibility_count;
// Ascending.
extern const composition unicode_compositions[];
extern const int unicode_compositions_count;
extern const uint32_t unicode_grapheme_runs[];
extern const int unicode_grapheme_runs_count;

// The unicode_flag bits of a code point.
uint32_t unicode_properties(uint32_t code);

// Letter, number or other, as a unicode_category_value.
uint32_t unicode_category(uint32_t code);

// The canonical combining class; 0 for starters.
uint32_t unicode_combining_class(uint32_t code);

// The lower-case mapping without context; writes one code point, or two for U+0130; returns how many.
int unicode_lowercase(uint32_t code, uint32_t out[2]);

// The full canonical decomposition, the code point itself where it has none; returns its length.
int unicode_decompose(uint32_t code, uint32_t out[kMaxDecomposition]);

// The full compatibility decomposition.
int unicode_decompose_compatibility(uint32_t code, uint32_t out[kMaxCompatibility]);

// The character that two compose to, or 0.
uint32_t unicode_compose(uint32_t first, uint32_t second);

// The grapheme class of a code point, less Hangul syllables; see grapheme.h.
uint32_t unicode_grapheme_run(uint32_t code);

// The ranges around which BERT's normalizer puts spaces, with the gap at 2B820 that the library has.
bool unicode_is_cjk(uint32_t code);

struct code_range {
    uint32_t first;
    uint32_t last;
};
constexpr code_range kCjkRanges[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
};

}  // namespace encoder_engine
