// What the encoder knows of each character: its class, and whether it may be taken as it stands.
#pragma once

#include <bitset>
#include <cstdint>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe/byte_masks.h"
#include "text/normalizer/chars.h"
#include "text/words/char_classes.h"

namespace encoder_engine {

// How characters become bytes, and where added tokens may begin among them.
class bpe_chars {
public:
    // The class of a character, and kUnusual unless it stays as it is whatever stands around it.
    static constexpr uint8_t kUnusual = 0x80, kClasses = 0x7F;

    // `marks`: a space is to become the mark. `digits`: numbers are those of Digits. `raw` and `normalized` are the added tokens.
    bpe_chars(const step_char_table& table, bool marks, bool digits, const added_token_set& raw,
              const added_token_set& normalized);

    uint8_t entry(uint32_t code) const {
        return entries_[static_cast<size_t>(stage_[code >> 8]) << 8 | (code & 0xFF)];
    }
    // Classes of the first 128 characters.
    const uint8_t* ascii() const { return ascii_; }
    // The same characters for the classifiers of words/ascii_block.h: a letter is taken as it stands,
    // or in lower case; an added token may begin at a start.
    const char_classes& blocks() const { return blocks_; }
    // Whether an added token may begin with an ASCII character and the one behind it, as they stand
    // or in lower case.
    bool may_start(uint32_t first, uint32_t second) const {
        // What stands behind may vanish.
        const bool plain = second < 128 && (blocks_.flags[second] & char_classes::kLetter) != 0;
        return !plain || starts_[128 * first + second] ||
               starts_[128 * blocks_.lowered[first] + blocks_.lowered[second]];
    }
    // Whether an added token takes in white space before it, or looks at the character before.
    bool looks_back() const { return looks_back_; }

private:
    uint8_t* own_block(uint32_t block);
    void note_starts(const added_token_set& added);

    std::vector<uint16_t> stage_;    // per 256 code points: index of their block
    std::vector<uint8_t> entries_;   // blocks of 256
    alignas(64) uint8_t ascii_[128];
    std::bitset<128 * 128> starts_;
    bool looks_back_ = false;
    char_classes blocks_;
};

}  // namespace encoder_engine
