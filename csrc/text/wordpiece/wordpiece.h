// The WordPiece model: greedy longest match of one normalized word against the vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/pod_vector.h"
#include "text/trie.h"
#include "text/vocabulary.h"
#include "text/words/word_cache.h"

namespace encoder_engine {

struct wordpiece_rules {
    int32_t unknown_id = 0;
    std::string continuation_prefix = "##";
    int64_t max_word_characters = 100;
};

class wordpiece_model {
public:
    wordpiece_model(const vocabulary& tokens, const wordpiece_rules& rules);

    // Appends the pieces of a word in UTF-8. If any part matches nothing, the whole word is one
    // unknown token.
    void match(const uint8_t* word, int64_t size, pod_vector<int32_t>& ids) const;

    // The size of a piece's text in the word, in bytes; `first`: it begins the word, without
    // prefix.
    int64_t piece_size(int32_t id, bool first) const {
        return piece_sizes_[static_cast<size_t>(id)] - (first ? 0 : numbers_.prefix_size);
    }

    // The size of a piece's text in the word, in 16-bit units.
    int64_t piece_units(int32_t id, bool first) const {
        return piece_units_[static_cast<size_t>(id)] - (first ? 0 : numbers_.prefix_units);
    }

    // The id of a word of one character, from a separate table: char_table looks up thousands of
    // them.
    int32_t match_character(uint32_t code) const;

    int32_t unknown_id() const { return numbers_.unknown_id; }
    int64_t max_word_characters() const { return numbers_.max_word_characters; }
    // The tokens of one character, as code points in ascending order.
    std::vector<uint32_t> characters() const;

private:
    static constexpr int kLineBits = 14;
    struct numbers {
        int64_t max_word_characters;
        int32_t prefix_size, prefix_units;
        int32_t continuation;  // the node behind the prefix, or kNone
        int32_t unknown_id;
    };

    struct character {
        uint32_t code;
        int32_t id;
    };

    void measure(const token_list& tokens);
    void keep_words(const token_list& tokens);
    void match_pieces(const uint8_t* word, int64_t size, pod_vector<int32_t>& ids) const;
    const word_line& line_of(const word_key& key) const {
        return words_[key.hash >> (64 - kLineBits)];
    }

    double_array_trie trie_;
    std::vector<word_line> words_;       // of the vocabulary: most words are among them
    std::vector<int32_t> piece_sizes_;   // by id, the prefix included
    std::vector<int32_t> piece_units_;
    std::vector<character> characters_;  // the tokens of one, by code point
    numbers numbers_{};
};

}  // namespace encoder_engine
