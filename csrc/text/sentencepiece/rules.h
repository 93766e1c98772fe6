// SentencePiece's normalization: the longest rule that matches, else the character itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/normalizer/charsmap.h"
#include "text/text_view.h"
#include "text/trie.h"

namespace encoder_engine {

class sentencepiece_rules {
public:
    // `symbols` are user-defined: they are matched before all rules, and stay as they are.
    sentencepiece_rules(const std::string& charsmap_bytes, std::vector<std::string> symbols);

    // One step of normalization.
    struct step {
        int64_t taken;         // characters
        const uint8_t* form;   // UTF-8; null: they stay as they are
        int64_t form_size;
    };
    template <typename Char>
    step next(const Char* text, int64_t at, int64_t length) const {
        const uint32_t entry = entry_of(text[at]);
        const bool alone = (entry & kContinues) == 0 || at + 1 >= length ||
                           (entry_of(text[at + 1]) & (kFollows | kInSymbol)) == 0;
        return alone ? character(entry) : longest(text, at, length);
    }

    // What a character becomes by itself, where no longer key matches.
    step alone(uint32_t code) const { return character(entry_of(code)); }
    // Whether longer keys begin with the character, and whether some rule's key has it second.
    bool continues(uint32_t code) const { return (entry_of(code) & kContinues) != 0; }
    bool follows(uint32_t code) const { return (entry_of(code) & kFollows) != 0; }
    // Whether the 256 characters from 256 * block on have no rule and begin no key.
    bool is_plain(uint32_t block) const { return stage_[block] == 0; }

private:
    static constexpr uint32_t kContinues = 1u << 31;  // begins longer keys
    static constexpr uint32_t kFollows = 1u << 30;    // is the second character of some rule's key
    static constexpr uint32_t kInSymbol = 1u << 29;   // ... of some symbol
    static constexpr uint32_t kIndex = kInSymbol - 1;

    uint32_t entry_of(uint32_t code) const {
        return entries_[static_cast<size_t>(stage_[code >> 8]) << 8 | (code & 0xFF)];
    }
    step character(uint32_t entry) const {
        const charsmap::rule& form = forms_[entry & kIndex];
        return {1, form.text, form.text_size};
    }
    template <typename Char>
    step longest(const Char* text, int64_t at, int64_t length) const {
        int64_t rule_size = 0, symbol_size = 0;
        charsmap::rule rule;
        int64_t base = rules_.root();
        int32_t node = double_array_trie::kRoot;
        for (int64_t i = at; i < length && (base >= 0 || node >= 0); ++i) {
            uint8_t bytes[4];
            const int size = write_utf8(text[i], bytes);
            bool ends = false;
            for (int j = 0; j < size; ++j) {
                if (base >= 0) base = rules_.follow(base, bytes[j], ends);
                if (node >= 0) node = symbols_.child(node, bytes[j]);
            }
            if (base >= 0 && ends && rules_.replacement(base, rule)) rule_size = i + 1 - at;
            if (node >= 0 && symbols_.value(node) >= 0) symbol_size = i + 1 - at;
        }
        if (symbol_size > 0) return {symbol_size, nullptr, 0};
        if (rule_size == 0) return {1, nullptr, 0};
        return {rule_size, rule.text, rule.text_size};
    }
    uint32_t& writable(uint32_t code);
    void mark_starts(const std::vector<std::string>& symbols);

    charsmap rules_;
    double_array_trie symbols_;
    std::vector<uint16_t> stage_;        // per 256 code points: index of their block
    std::vector<uint32_t> entries_;      // blocks of 256: flags, and where the form is
    std::vector<charsmap::rule> forms_;  // of single characters; the first is of those that stay
};

}  // namespace encoder_engine
