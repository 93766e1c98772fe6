// Matches one word at a time, as the regular expressions of published tokenizers do.
//
// The reference of the cutter by masks, and its way out where a word is long or its characters are
// rare ones.
#pragma once

#include <cstdint>

#include "text/bpe/byte_masks.h"

namespace encoder_engine {

// How text is cut into words. The expressions are in encoder_engine/text/formats/bpe_json.py.
enum class word_pattern : uint8_t {
    whole,        // a segment is a word
    gpt2,         // GPT-2's; ByteLevel's own
    gpt2_digits,  // each digit alone, GPT-2's between them (StarCoder)
    digits_three, // cl100k's and Llama 3's: up to three digits
    digits_one,   // Qwen 2's: each digit alone
    clip,         // CLIP's: white space goes
    marks,        // a word begins at every mark (Metaspace)
    blanks,       // words are cut where no token could cross; a segment counts as one
};

// A stretch of text: UTF-8, and for each byte that is not ASCII the class of its character.
struct classed_text {
    const uint8_t* bytes;
    const uint8_t* classes;
    const uint8_t* ascii;  // the classes of 128 characters
    int64_t size;
    bool last;             // no more text follows

    uint8_t class_at(int64_t at) const {
        return bytes[at] < 0x80 ? ascii[bytes[at]] : classes[at];
    }
    int64_t next(int64_t at) const {
        const uint8_t lead = bytes[at];
        return at + (lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF8 ? 4 : 1);
    }
};

class word_matcher {
public:
    word_matcher(word_pattern pattern, const classed_text& text) : pattern_(pattern), text_(text) {}

    // The end of the word that begins at `at`; -1 if it depends on what follows the text.
    int64_t match(int64_t at);
    // Bytes of the contraction at an apostrophe, 0 if there is none.
    int64_t contraction(int64_t at) const;

private:
    int64_t match_gpt2(int64_t at);
    int64_t match_modern(int64_t at);
    int64_t match_clip(int64_t at);
    int64_t match_spaces(int64_t at);
    int64_t run(int64_t at, uint8_t classes);
    int64_t run_of_others(int64_t at);
    bool is(int64_t at, uint8_t classes) const { return (text_.class_at(at) & classes) != 0; }
    bool is_other(int64_t at) const { return !is(at, kLetterClass | kNumberClass | kSpaceClass); }
    // Whether there is a byte at a place; noted, because more text might bring one.
    bool has(int64_t at) {
        if (at < text_.size) return true;
        open_ = !text_.last;
        return false;
    }

    word_pattern pattern_;
    const classed_text& text_;
    bool open_ = false;
};

}  // namespace encoder_engine
