// SentencePiece's compiled normalization rules: a trie of keys, and what each of them becomes.
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

    // From bytes that encoder_engine/text/charsmap.py has checked; none are no rules. A walk never
    // leaves the array whatever the bytes are.
    explicit charsmap(const std::string& bytes);

    bool empty() const { return units_.empty(); }
    // The shortest key, and the longest, with which the text begins.
    rule shortest(const uint8_t* text, int64_t size) const { return find(text, size, true); }
    rule longest(const uint8_t* text, int64_t size) const { return find(text, size, false); }
    // Whether some key goes on behind this text.
    bool continues(const uint8_t* text, int64_t size) const;
    // Calls back with each character that keys begin with.
    void for_each_start(const std::function<void(uint32_t code)>& callback) const;

private:
    rule find(const uint8_t* text, int64_t size, bool first) const;
    // Follows a byte from the base of a node; gives the base of the next, or -1.
    int64_t step(int64_t base, uint8_t byte, bool& has_value) const;
    int64_t base_of(int64_t place) const;
    bool value_at(int64_t base, rule& out) const;

    std::vector<uint32_t> units_;
    std::string replacements_;  // each ended by a zero
};

}  // namespace encoder_engine
