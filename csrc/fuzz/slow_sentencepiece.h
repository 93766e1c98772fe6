// SentencePiece step by step, each on the whole text: the twin that fuzzing compares with.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fuzz/slow_charsmap.h"
#include "fuzz/slow_token.h"
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

    // What the characters from a place on become, and how many they are.
    characters next(const characters& text, size_t at, size_t& taken) const;
    // The normalized text, and where each of its characters comes from; one source more for its end.
    characters normalize(const characters& text, std::vector<int32_t>& sources) const;
    int32_t word_of(const characters& text, int64_t at) const;

    slow_model model_;
    sentencepiece_options options_;
    std::map<characters, characters> rules_, symbols_;
    size_t longest_ = 1;  // characters of a key
    uint32_t mark_;
};

}  // namespace encoder_engine
