// Finds the boundaries of grapheme clusters (Unicode Standard Annex 29).
#pragma once

#include <cstdint>

namespace encoder_engine {

// The order of csrc/tools/grapheme_classes.py; the last two follow from a syllable's number.
enum class grapheme_class : uint8_t {
    other, control, carriage_return, line_feed, extend, joiner, spacing, prepend,
    hangul_l, hangul_v, hangul_t, regional, pictograph, consonant, linker, non_joiner,
    hangul_lv, hangul_lvt,
};

grapheme_class grapheme_class_of(uint32_t code);

// Whether there is always a boundary between two characters of these classes.
inline bool is_separate(grapheme_class kind) {
    return kind == grapheme_class::other || kind == grapheme_class::control ||
           kind == grapheme_class::line_feed || kind == grapheme_class::pictograph ||
           kind == grapheme_class::consonant || kind == grapheme_class::hangul_lv ||
           kind == grapheme_class::hangul_lvt;
}

// Takes the characters of a text one after the other.
class grapheme_cursor {
public:
    // Whether a cluster starts with the next character.
    bool take(uint32_t code);

private:
    bool breaks_before(grapheme_class next) const;

    grapheme_class last_ = grapheme_class::control;
    bool started_ = false;
    bool pictograph_ = false;   // a pictograph, then extenders; with last_ the joiner behind it
    bool odd_regional_ = false;
    enum class conjunct : uint8_t { none, consonant, linked } conjunct_ = conjunct::none;
};

}  // namespace encoder_engine
