// Finds where words begin, for 64 bytes at a time.
//
// How it works: each class of characters is a bit mask, so that an expression becomes a formula. A
// word begins where a run of one class begins, unless a space before it belongs to it, with the first
// character of a run of white space, and with its last one before something else. What formulas tell
// badly is rare, and is a loop over the bits concerned: contractions, line ends, groups of three
// digits. No expression looks back, so text can be cut anew from the start of any word.
#pragma once

#include <cstdint>

#include "text/bpe/byte_masks.h"
#include "text/bpe/matcher.h"
#include "text/words/word_cutter.h"

namespace encoder_engine {

struct word_starts {
    static constexpr int kBytes = 2048;  // of text, at most
    static constexpr int kPadding = 64;  // readable behind the text and its classes

    int count = 0;      // of whole words; the last one ends at places[count]
    bool nul = false;   // some byte is zero
    uint16_t places[kBytes + 2 * kPadding];
};

class pattern_cutter {
public:
    explicit pattern_cutter(word_pattern pattern)
        : pattern_(pattern), read_(choose_mask_function()), write_(choose_scan_functions().places) {}

    word_pattern pattern() const { return pattern_; }
    // Finds the words at the start of a text of 1 to kBytes bytes. Unless it is the last of its
    // segment, the word at its end is left out; none is found where one word takes all of it.
    void cut(const classed_text& text, word_starts& out) const;

private:
    void match(const classed_text& text, word_starts& out) const;

    word_pattern pattern_;
    mask_function read_;
    places_function write_;
};

}  // namespace encoder_engine
