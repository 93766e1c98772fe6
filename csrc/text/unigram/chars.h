// What the normalizers make of each code point that they treat alike wherever it stands.
#pragma once

#include <cstdint>
#include <vector>

#include "text/unigram/normalizer.h"

namespace encoder_engine {

// One entry: flags, and where the normal form is written down.
struct unigram_char {
    uint32_t bits = 0;
    // Its form does not depend on its neighbours, nor theirs on it, if they are regular themselves.
    bool regular() const { return (bits & kIrregular) == 0; }
    // Regular, and at every step more than white space is left of it: a segment's edges end here.
    bool solid() const { return (bits & (kIrregular | kHollow)) == 0; }
    // Irregular, but only towards what is before it.
    bool leans_back() const { return (bits & kLeansBack) != 0; }
    // Regular, but one that leans back may have tied it to what is before both.
    bool guarded() const { return (bits & kGuarded) != 0; }
    // Irregular, but only as part of a grapheme cluster: it has its form wherever those do not bind
    // that stand before it.
    bool tied() const { return (bits & kTied) != 0; }
    // A cluster of it and a character behind it, of at least three bytes or of fewer, may have a rule
    // of its own.
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

// Characters from here on have three bytes or more, so that no cluster of two has less than six.
constexpr uint32_t kWideFirst = 0x800;

class unigram_char_table {
public:
    explicit unigram_char_table(const unigram_normalizer& normalizer);

    // Whether what is before a place between two characters and what is behind can be normalized
    // apart.
    static bool separates(unigram_char before, unigram_char behind) {
        if (!behind.regular()) return false;
        return before.regular() || (before.leans_back() && !behind.guarded());
    }

    // Marks the characters with which added tokens start.
    void mark_added_starts(const std::vector<uint32_t>& codes);

    unigram_char operator[](uint32_t code) const {
        return chars_[static_cast<size_t>(stage_[code >> 8]) << 8 | (code & 0xFF)];
    }
    // Whether nothing is to be said of any of the 256 characters from 256 * block on.
    bool is_plain(uint32_t block) const { return stage_[block] == 0; }
    // The normal form of a regular character that is not itself.
    const uint32_t* form(unigram_char c, int64_t& size) const {
        size = forms_[c.index()];
        return forms_.data() + c.index() + 1;
    }

private:
    unigram_char& writable(uint32_t code);
    void set(uint32_t code, const unigram_normalizer& normalizer, sourced_text& text,
             sourced_text& spare);

    std::vector<uint16_t> stage_;      // per 256 code points: index of their block
    std::vector<unigram_char> chars_;  // blocks of 256; the first is of regular characters
    std::vector<uint32_t> forms_;      // each with its length before it
};

}  // namespace encoder_engine
