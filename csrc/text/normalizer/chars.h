// The normal form of each code point that is normalized alike wherever it stands.
#pragma once

#include <cstdint>
#include <vector>

#include "text/normalizer/normalizer.h"

namespace encoder_engine {

// One entry: flags, and the index of the normal form.
struct step_char {
    uint32_t bits = 0;
    // Regular: among regular characters, its form does not depend on neighbours, nor theirs on it.
    bool regular() const { return (bits & kIrregular) == 0; }
    // Solid: regular, and never reduced to white space. Effects of a segment's edges end at it.
    bool solid() const { return (bits & (kIrregular | kHollow)) == 0; }
    // Leans back: irregular, but depends only on characters before it.
    bool leans_back() const { return (bits & kLeansBack) != 0; }
    // Guarded: regular, but a character that leans back may tie it to the character before both.
    bool guarded() const { return (bits & kGuarded) != 0; }
    // Tied: irregular only within a grapheme cluster. Its form is fixed where the characters before
    // it do not bind.
    bool tied() const { return (bits & kTied) != 0; }
    // Binds: a cluster of this character and a following one may have a rule of its own. Wide: the
    // following one has at least three bytes in UTF-8; narrow: fewer.
    bool binds_wide() const { return (bits & kBindsWide) != 0; }
    bool binds_narrow() const { return (bits & kBindsNarrow) != 0; }
    bool starts_added() const { return (bits & kStartsAdded) != 0; }
    bool surrogate() const { return (bits & kSurrogate) != 0; }
    // Stands for itself.
    bool identity() const { return (bits & kIndex) == 0; }
    uint32_t index() const { return bits & kIndex; }
    static constexpr uint32_t kIrregular = 1u << 31;
    static constexpr uint32_t kHollow = 1u << 30;
    static constexpr uint32_t kStartsAdded = 1u << 29;
    static constexpr uint32_t kSurrogate = 1u << 28;
    static constexpr uint32_t kLeansBack = 1u << 27;
    static constexpr uint32_t kGuarded = 1u << 26;
    static constexpr uint32_t kTied = 1u << 25;
    static constexpr uint32_t kBindsWide = 1u << 24;
    static constexpr uint32_t kBindsNarrow = 1u << 23;
    static constexpr uint32_t kIndex = kBindsNarrow - 1;
};

// From here on characters have at least three bytes, so a cluster of two has at least six.
constexpr uint32_t kWideFirst = 0x800;

class step_char_table {
public:
    explicit step_char_table(const step_normalizer& normalizer);

    // Whether the text before a boundary and the text after it can be normalized separately.
    static bool separates(step_char before, step_char after) {
        if (!after.regular()) return false;
        return before.regular() || (before.leans_back() && !after.guarded());
    }

    // Marks the characters with which added tokens start.
    void mark_added_starts(const std::vector<uint32_t>& codes);

    step_char operator[](uint32_t code) const {
        return chars_[static_cast<size_t>(stage_[code >> 8]) << 8 | (code & 0xFF)];
    }
    // Whether the 256 characters from 256 * block on are all regular and without flags.
    bool is_plain(uint32_t block) const { return stage_[block] == 0; }
    // The normal form of a regular character that is not itself.
    const uint32_t* form(step_char c, int64_t& size) const {
        size = forms_[c.index()];
        return forms_.data() + c.index() + 1;
    }

private:
    step_char& writable(uint32_t code);
    void set(uint32_t code, const step_normalizer& normalizer, sourced_text& text,
             sourced_text& spare);

    std::vector<uint16_t> stage_;      // per 256 code points: index of their block
    std::vector<step_char> chars_;  // blocks of 256; the first is of regular characters
    std::vector<uint32_t> forms_;      // each with its length before it
};

}  // namespace encoder_engine
