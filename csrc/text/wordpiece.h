// The WordPiece model: greedy longest match of one normalized word against the vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/pod_vector.h"
#include "text/trie.h"
#include "text/word_cache.h"

namespace encoder_engine {

struct wordpiece_vocabulary {
    std::vector<std::pair<std::string, int32_t>> tokens;  // distinct UTF-8 strings and their ids
    int32_t unknown_id = 0;
    std::string continuation_prefix = "##";
    int64_t max_word_characters = 100;
};

class wordpiece_model {
public:
    explicit wordpiece_model(wordpiece_vocabulary vocabulary);

    // Appends the pieces of a word of UTF-8 bytes. A word with a part that matches nothing is one
    // unknown piece.
    void match(const uint8_t* word, int64_t size, pod_vector<int32_t>& ids) const;

    // Bytes of the word that a piece stands for, which depends on its being the first.
    int64_t piece_size(int32_t id, bool first) const {
        return piece_sizes_[static_cast<size_t>(id)] - (first ? 0 : prefix_size_);
    }

    // The same in 16-bit units.
    int64_t piece_units(int32_t id, bool first) const {
        return piece_units_[static_cast<size_t>(id)] - (first ? 0 : prefix_units_);
    }

    // The id of a word of one character.
    int32_t match_character(uint32_t code) const;

    int32_t unknown_id() const { return unknown_id_; }
    int64_t max_word_characters() const { return max_word_characters_; }
    int64_t num_bytes() const { return trie_.num_bytes(); }

private:
    void match_pieces(const uint8_t* word, int64_t size, pod_vector<int32_t>& ids) const;

    double_array_trie trie_;
    word_cache words_;  // of the vocabulary: most words are among them
    std::vector<int32_t> piece_sizes_;  // by id, the prefix included
    std::vector<int32_t> piece_units_;
    int32_t prefix_size_, prefix_units_;
    int32_t continuation_;  // the node behind the prefix, or kNone
    int32_t unknown_id_;
    int64_t max_word_characters_;
};

}  // namespace encoder_engine
