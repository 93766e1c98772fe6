// SentencePiece step by step, each on the whole text: the twin that fuzzing compares with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/twins/slow_charsmap.h"
#include "fuzz/twins/slow_token.h"
#include "text/sentencepiece/encoder.h"

namespace encoder_engine {

class slow_sentencepiece {
public:
    // `rules` are those of the options, before they were compiled.
    slow_sentencepiece(const unigram_pieces& pieces, const charsmap_rules& rules,
                       sentencepiece_options options);

    // The tokens of a text without lone surrogates.
    std::vector<slow_token> encode(const std::vector<uint32_t>& text) const;

private:
    using characters = std::vector<uint32_t>;

    // Normalizes the characters from `at` on; `taken` becomes the number of characters consumed.
    characters next(const characters& text, size_t at, size_t& taken) const;
    // Returns the normalized text. `sources` becomes the source of each character and of the text's
    // end.
    characters normalize(const characters& text, std::vector<int32_t>& sources) const;
    int32_t word_of(const characters& text, int64_t at) const;

    slow_model model_;
    sentencepiece_options options_;
    std::map<characters, characters> rules_, symbols_;
    size_t longest_ = 1;  // characters of a key
    uint32_t mark_;
};

}  // namespace encoder_engine
