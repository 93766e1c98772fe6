// Unigram step by step, each on the whole text: the twin that fuzzing compares with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/twins/slow_token.h"
#include "text/unigram/encoder.h"

namespace encoder_engine {

class slow_unigram {
public:
    slow_unigram(const unigram_pieces& pieces, unigram_options options);

    // The tokens of a text without lone surrogates and added tokens.
    std::vector<slow_token> encode(const std::vector<uint32_t>& text) const;

private:
    using characters = std::vector<sourced_char>;

    sourced_text normalize(const std::vector<uint32_t>& text) const;
    std::vector<characters> split(const sourced_text& text) const;
    void add_word(const characters& chars, int32_t word, std::vector<slow_token>& out) const;
    void add_unknown(const characters& unknown, int32_t word, std::vector<slow_token>& out) const;

    slow_model model_;
    unigram_options options_;
};

}  // namespace encoder_engine
