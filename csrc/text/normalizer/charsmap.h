// SentencePiece's compiled normalization rules: a trie of keys, and the replacement of each.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace encoder_engine {

// The trie is a double array of 32-bit units as darts-clone makes it (S. Yata, 2008): the low byte
// of a unit is the byte that leads to it, its offset leads on, and a flag says that the unit at its
// base holds a value: where the replacement starts.
class charsmap {
public:
    struct rule {
        int64_t size = 0;             // bytes of the key; 0 if no key fits
        const uint8_t* text = nullptr;  // the replacement
        int64_t text_size = 0;
    };

    // `bytes` were checked by encoder_engine/text/formats/charsmap.py; empty: no rules. A walk
    // never leaves the array, whatever the bytes are.
    explicit charsmap(const std::string& bytes);

    bool empty() const { return units_.empty(); }
    // Finds the shortest key, or the longest, that is a prefix of the text.
    rule shortest(const uint8_t* text, int64_t size) const { return find(text, size, true); }
    rule longest(const uint8_t* text, int64_t size) const { return find(text, size, false); }
    // Whether some key continues after this text.
    bool continues(const uint8_t* text, int64_t size) const;
    // Whether some key that continues after this text has an empty replacement.
    bool vanishes_behind(const uint8_t* text, int64_t size) const;
    // root() is the base of the trie. follow() returns the base after one more byte, or -1;
    // `has_value` becomes whether a key ends there.
    int64_t root() const { return units_.empty() ? -1 : base_of(0); }
    int64_t follow(int64_t base, uint8_t byte, bool& has_value) const;
    // The replacement of the key that ends at a base; false where a damaged trie has none.
    bool replacement(int64_t base, rule& out) const;
    // Calls back with each character that begins a key or, after `text`, continues one.
    void for_each_next(const uint8_t* text, int64_t size,
                       const std::function<void(uint32_t code)>& callback) const;

private:
    bool any_vanishes(int64_t base, int depth) const;
    rule find(const uint8_t* text, int64_t size, bool first) const;
    int64_t base_of(int64_t place) const;

    std::vector<uint32_t> units_;
    std::string replacements_;  // each ended by a zero
};

}  // namespace encoder_engine
