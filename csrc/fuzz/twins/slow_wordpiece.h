// WordPiece step by step, each on a whole copy of the text: the twin that fuzzing compares with.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tests/model_pieces.h"
#include "text/unicode/char_table.h"

namespace encoder_engine {

class slow_wordpiece {
public:
    slow_wordpiece(const wordpiece_vocabulary& vocabulary, const normalizer_options& options);

    // The ids of a text without lone surrogates and added tokens.
    std::vector<int32_t> encode(const std::vector<uint32_t>& text) const;

private:
    std::vector<uint32_t> normalize(const std::vector<uint32_t>& text) const;
    void match(const std::vector<uint32_t>& word, std::vector<int32_t>& ids) const;

    std::unordered_map<std::string, int32_t> pieces_;
    normalizer_options options_;
    int32_t unknown_id_;
    std::string prefix_;
    int64_t max_word_characters_;
};

}  // namespace encoder_engine
