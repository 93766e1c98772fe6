// The class of each character for the word scanner: part of a word, a word of its own, white space.
#pragma once

#include <cstdint>
#include <vector>

#include "text/added_tokens.h"
#include "text/unicode/char_table.h"

namespace encoder_engine {

// Maps characters to one unit each and, for a few, to several, by table. All other characters block
// the word scanner, which leaves them to the character scanner.
struct char_classes {
    static constexpr uint8_t kLetter = 1;  // part of a word
    static constexpr uint8_t kSingle = 2;  // punctuation, an ideograph: a word of its own
    static constexpr uint8_t kSpace = 4;
    static constexpr uint8_t kUpper = 8;   // an ASCII letter that 0x20 is added to
    static constexpr uint8_t kStart = 16;  // an added token may start here

    static constexpr uint8_t kBeyond = 128;  // not ASCII

    // The class of each byte; 0 blocks. ASCII characters map to ASCII only; 255 stands for all
    // others.
    alignas(64) uint8_t flags[256] = {};
    alignas(64) uint8_t lowered[256] = {};
    // Per class and low nibble, a bit for each high nibble whose character is in the class: with
    // two byte shuffles, a test for any set of ASCII characters.
    alignas(16) uint8_t nibbles[5][16] = {};

    // For each character below 0x10000: its unit, its flags, the number of units (0 or 1), and
    // whether it blocks after a character that binds; or a special action.
    static constexpr uint32_t kFlagsShift = 16;
    static constexpr uint32_t kOne = 1u << 24;
    // Tied: blocks after a character that binds its kind, and at a chunk's start.
    static constexpr uint32_t kTiedWide = 1u << 25;
    static constexpr uint32_t kTiedNarrow = 1u << 26;
    static constexpr uint32_t kTied = kTiedWide | kTiedNarrow;
    // Binds: makes a tied character of the same kind after it block.
    static constexpr int kBindsShift = 2;
    static constexpr uint32_t kBindsWide = kTiedWide << kBindsShift;
    static constexpr uint32_t kBindsNarrow = kTiedNarrow << kBindsShift;
    static constexpr uint32_t kBinds = kBindsWide | kBindsNarrow;
    static constexpr uint32_t kSpecial = 1u << 31;
    static constexpr uint32_t kBlocked = kSpecial | 1u << 30;
    static constexpr uint32_t kHangul = kSpecial | 1u << 29;
    // else kSpecial and the index of an expansion
    static constexpr uint32_t kUnusual = kSpecial | static_cast<uint32_t>(kStart) << kFlagsShift;
    std::vector<uint32_t> wide;
    // The letters that one character becomes, or a space that nothing tied may stand behind.
    struct expansion {
        uint32_t ties = 0;  // of kTied and kBinds
        uint8_t flag = kLetter;
        uint8_t count = 0;
        uint16_t units[kMaxNormal];
    };
    std::vector<expansion> expansions;

    // Whether a character above 0xFFFF is a letter that stays as it is.
    bool is_astral_letter(uint32_t code) const {
        const uint16_t block = astral_blocks[(code - 0x10000) >> 8];
        return block == 1 ||
               (block > 1 && (astral_bits[4 * block + (code >> 6 & 3)] >> (code & 63) & 1) != 0);
    }
    // For each 256 characters: 0: none is a letter, 1: all are, else the place of their bits.
    std::vector<uint16_t> astral_blocks;
    std::vector<uint64_t> astral_bits;

    // The low bytes of the characters that come second in added tokens.
    bool seconds[256] = {};
    bool any_second = false;

    // Whether the characters from text[at] on can be an added token; at is a start.
    template <typename Char>
    bool may_be_added(const Char* text, int64_t at, int64_t length) const {
        return any_second || (at + 1 < length && seconds[text[at + 1] & 0xFF]);
    }

    // All characters blocked.
    explicit char_classes(const added_token_set& added);
    // Classes of a BERT normalizer and pre-tokenizer.
    char_classes(const char_table& table, const added_token_set& added);

    // An entry of a character that becomes one unit.
    static uint32_t one_unit(uint32_t unit, uint8_t flags) {
        return unit | static_cast<uint32_t>(flags) << kFlagsShift | kOne;
    }
    // An entry of a character that becomes letters; kBlocked if they do not fit 16-bit units.
    uint32_t letters(const uint32_t* codes, int64_t count, uint32_t ties = 0);
    // An entry of a tied character that becomes a space.
    uint32_t tied_space(uint32_t ties);
    // Sets which of the 256 characters from 0x10000 + 256 * block on are letters, by their bits.
    void set_astral(uint32_t block, const uint64_t (&bits)[4]);
    // Marks the character as one that may start an added token.
    void mark_start(uint32_t code);
    // Fills the ASCII tables from `wide`, once all characters are set.
    void finish();

private:
    void set_wide(uint32_t code, const char_table& table);
    void set_astral(const char_table& table);
};

}  // namespace encoder_engine
