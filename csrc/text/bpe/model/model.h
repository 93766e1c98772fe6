// A BPE model: its tokens, its merges, and what tells at once whether two tokens stay apart.
//
// How it works: merging a word step by step is slow, and never needed. A row of tokens is the result
// of merging exactly if every token is the result for its own bytes, and every two neighbours, merged
// together, stay apart. (Merges inside a token need only its bytes; the first merge across a border
// would happen in those two tokens alone as well.) So a word is cut into the longest tokens from a
// trie, each checked against the token before; see segmenter.h.
//
// Whether two tokens stay apart is read off their own merging: each token has a level, the highest
// rank in its merging plus one, and the two parts of its last merge. Walking back from the border, the
// later formed of both is taken apart first; a merge across is due if its rank is reached before
// either part is used up. Only levels that are equal need a real merge of the two.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe/model/byte_trie.h"
#include "text/bpe/model/merge_table.h"
#include "text/text_view.h"
#include "text/vocabulary.h"

namespace encoder_engine {

// What the symbols are that merging starts with.
enum class bpe_symbols : uint8_t {
    bytes,       // each byte, written as a letter of the byte-level alphabet
    characters,  // each character
};

struct bpe_rules {
    bpe_symbols symbols = bpe_symbols::bytes;
    std::string suffix;         // of the last symbol of a word; of bytes only
    bool ignore_merges = false; // a word that is a token is that token, whatever the merges say
    bool byte_fallback = false; // characters without a symbol become the tokens of their bytes
    int32_t unknown = -1;       // the token of characters that have neither, or -1
    bool fuse_unknown = false;
};

// Why a model is refused: a rule, and the merge or token it is about.
struct bpe_refusal {
    enum kind : uint8_t {
        none,
        too_large,       // more ids or merges than the tables hold
        missing_part,    // merge `place` names a token that the vocabulary lacks
        missing_result,  // ... or gives one
        missing_symbol,  // the vocabulary lacks symbol `place`, a byte
        special_merge,   // merge `place` has the unknown token or a byte's token
        suffix_inside,   // merge `place` makes the suffix out of letters
    };
    kind why = none;
    int64_t place = 0;
};

// What is known of a token, in 16 bytes.
class bpe_token {
public:
    // Bytes, the suffix less; 0: the token is never made.
    uint32_t size() const { return static_cast<uint32_t>(rest_); }
    uint32_t stored() const { return size() + ends(); }
    // The longest token that begins it, less itself, inside words; or -1.
    int32_t shorter() const { return static_cast<int32_t>(rest_ >> 32 & (2 * kIds - 1)) - 1; }
    bool made() const { return (rest_ & kMade) != 0; }  // by merging its bytes
    bool ends() const { return rest_ >> 63 != 0; }      // with the suffix
    // The highest rank of its own merging plus one; 0: a symbol.
    uint32_t level() const { return static_cast<uint32_t>(parts_ >> 40); }
    // Of its last merge; of no meaning in a symbol.
    int32_t left() const { return static_cast<int32_t>(parts_ & (kIds - 1)); }
    int32_t right() const { return static_cast<int32_t>(parts_ >> 20 & (kIds - 1)); }

    void set_text(uint32_t size, bool ends) { rest_ = size | static_cast<uint64_t>(ends) << 63; }
    void set_made() { rest_ |= kMade; }
    void set_shorter(int32_t id) { rest_ |= static_cast<uint64_t>(id + 1) << 32; }
    void set_merge(uint32_t level, int32_t left, int32_t right) {
        set_made();
        parts_ = static_cast<uint64_t>(level) << 40 | static_cast<uint64_t>(right) << 20 | static_cast<uint64_t>(left);
    }

private:
    static constexpr uint64_t kIds = 1ull << merge_table::kIdBits, kMade = 1ull << 62;
    uint64_t parts_ = 0;  // left | right << 20 | level << 40
    uint64_t rest_ = 0;   // size | (shorter + 1) << 32 | made << 62 | ends << 63
};

class bpe_model {
public:
    // U+2581 stands for a space in vocabularies of characters. It is kept as the byte of a space, and
    // a space as a byte that UTF-8 never has. The suffix is a byte that UTF-8 never has either.
    static constexpr uint8_t kMarkByte = 0x20, kSpaceByte = 0xFE, kSuffixByte = 0xFF;
    static constexpr uint32_t kMark = 0x2581;

    // `merges`, best first, give ids of `tokens`, -1 for what the vocabulary lacks.
    bpe_model(const vocabulary& tokens, const std::vector<bpe_merge>& merges, bpe_rules rules);
    // The model must not be used unless this is `none`.
    const bpe_refusal& refusal() const { return refusal_; }

    const bpe_rules& rules() const { return rules_; }
    const byte_trie& trie() const { return trie_; }
    const bpe_token& token(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
    void prefetch(int32_t id) const { __builtin_prefetch(&tokens_[static_cast<size_t>(id)]); }
    const merge_table& merges() const { return merges_; }
    // The token of a byte, or -1.
    int32_t byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
    // White space at the ends of a token's text; filled by count_blanks().
    blank_ends blanks(int32_t id) const;
    void count_blanks(const vocabulary& tokens);
    // Whether nothing reaches from another character to a mark behind it, no token and no unknown
    // text: then a word may be cut there.
    bool marks_begin() const {
        const bool fuses = rules_.fuse_unknown && !rules_.byte_fallback;
        return marks_begin_ && !(fuses && character_token(kMarkByte) < 0);
    }

    // Whether two tokens stay apart, from their levels; `undecided` is set where only merging tells.
    bool stay_apart(int32_t left, int32_t right, bool& undecided) const;
    // Merges symbols step by step, in place.
    struct merging {
        std::vector<int32_t> symbols;
        std::vector<uint32_t> ranks;  // of each with the next
        uint32_t level = 0;
        int32_t left = -1, right = -1;  // of the last merge
    };
    void merge(merging& state) const;
    // Appends the symbols of a token that is made.
    void split(int32_t id, std::vector<int32_t>& symbols) const;
    // Reads a character as it is kept; a space and the mark are given as their bytes.
    static uint32_t read_stored(const uint8_t*& at) {
        return *at == kSpaceByte ? *at++ : read_utf8(at);
    }

private:
    struct builder;
    int32_t character_token(uint32_t code) const;
    void merge_long(merging& state) const;

    bpe_rules rules_;
    bpe_refusal refusal_;
    std::vector<bpe_token> tokens_;  // by id
    merge_table merges_;
    byte_trie trie_;
    std::vector<int32_t> byte_tokens_;
    std::vector<std::pair<uint32_t, int32_t>> characters_;  // symbols, ascending; see read_stored()
    std::vector<blank_ends> blanks_;                        // by id, where offsets are trimmed
    bool marks_begin_ = true;
};

}  // namespace encoder_engine
