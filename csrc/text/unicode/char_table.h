// The action of the BERT normalizer and pre-tokenizer on each code point, one table per tokenizer.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace encoder_engine {

// The normalizer's four switches; strip_accents is already resolved (tokenizer.json may say null).
struct normalizer_options {
    bool clean_text = true;
    bool handle_cjk = true;
    bool strip_accents = true;
    bool lowercase = true;
};

// The effect of one code point. kIdentity must be 0: most of Unicode shares one block of zeros.
enum class char_kind : uint32_t {
    identity,    // a letter that stays as it is
    dropped,     // removed by cleaning or accent stripping
    space,       // ends a word; the payload is the space it becomes
    isolated,    // punctuation: a word of its own; the payload is what the builder was told
    cjk,         // an ideograph: a word of its own, between two spaces in the normalized text
    mapped,      // a letter that becomes the payload
    expanded,    // several characters: items from the payload on, see char_table::items()
    hangul,      // a syllable that decomposes by arithmetic into two or three letters
    nonstarter,  // survives stripping but takes part in canonical reordering
    surrogate,   // not a character
};

// One entry: kind, the mark for characters an added token starts with, and a 27-bit payload.
struct char_action {
    uint32_t bits = 0;
    char_kind kind() const { return static_cast<char_kind>(bits >> 28); }
    bool starts_added() const { return (bits & kStartsAdded) != 0; }
    uint32_t payload() const { return bits & kPayload; }
    static constexpr uint32_t kStartsAdded = 1u << 27;
    static constexpr uint32_t kPayload = kStartsAdded - 1;
    static char_action make(char_kind kind, uint32_t payload) {
        return {static_cast<uint32_t>(kind) << 28 | payload};
    }
};

// One character of normalized text: a letter, a space or an isolated one.
struct normal_char {
    uint32_t code;
    char_kind kind;    // identity, space or isolated
    uint32_t payload;  // of an isolated one, as the builder was told
};

constexpr int kMaxNormal = 8;

// The normal form of one code point taken alone.
struct normal_form {
    normal_char chars[kMaxNormal];
    int count = 0;
    bool cjk = false;         // to be set between spaces
    bool nonstarter = false;  // a character of non-zero combining class survives
};
normal_form normalize_code_point(uint32_t code, const normalizer_options& options);

// Lower-cases one decomposed character if the options say so, and appends the result.
void lower_code_point(uint32_t code, const normalizer_options& options, normal_form& form);

class char_table {
public:
    // The value to store for an isolated character, such as its token id; at most 27 bits.
    // Ideographs that are not `known` share the value of kUnicodeEnd.
    using payload_function = std::function<uint32_t(uint32_t code)>;

    char_table(const normalizer_options& options, const payload_function& payload,
               const std::vector<uint32_t>& known);

    // Marks the characters with which added tokens start.
    void mark_added_starts(const std::vector<uint32_t>& codes);

    char_action operator[](uint32_t code) const {
        return actions_[static_cast<size_t>(stage_[code >> 8]) << 8 | (code & 0xFF)];
    }
    // The actions of 256 characters. Blocks with equal content are shared.
    const char_action* block(uint32_t index) const {
        return actions_.data() + (static_cast<size_t>(stage_[index]) << 8);
    }
    // The characters of an expanded action.
    const normal_form& expansion(uint32_t payload) const { return expansions_[payload]; }
    const normalizer_options& options() const { return options_; }

private:
    char_action& writable(uint32_t code);
    void fill(uint32_t first, uint32_t last, char_action action);
    void set(uint32_t code, const payload_function& payload);
    void set_listed(const payload_function& payload);

    normalizer_options options_;
    std::vector<uint16_t> stage_;       // per 256 code points: index of their block
    std::vector<char_action> actions_;  // blocks of 256
    std::vector<bool> shared_;          // per block: more than one stage entry may point to it
    std::vector<normal_form> expansions_;
};

}  // namespace encoder_engine
