// BPE step by step over the whole text: the twin of the encoder for the fuzz target.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fuzz/twins/slow_token.h"
#include "text/bpe/model/model.h"
#include "text/bpe/text_buffer.h"
#include "text/normalizer/normalizer.h"

namespace encoder_engine {

// A tokenizer as a file has it; a token's place is its id.
struct bpe_file {
    std::vector<std::string> tokens;
    std::vector<std::pair<std::string, std::string>> merges;
    bpe_rules rules;
    std::vector<normalizer_step> steps;
    bpe_splitting splitting;
};

class slow_bpe {
public:
    explicit slow_bpe(bpe_file file);
    // Encodes a text without lone surrogates; there are no added tokens.
    std::vector<slow_token> encode(const std::vector<uint32_t>& text) const;

private:
    struct symbol {
        std::string text;
        int32_t id;
        int32_t start, stop;
    };
    std::vector<symbol> symbols_of(const sourced_char* chars, int64_t count) const;
    void merge(std::vector<symbol>& symbols) const;
    int32_t id_of(const std::string& text) const;

    bpe_file file_;
    std::map<std::string, int32_t> ids_;
    std::map<std::pair<std::string, std::string>, size_t> ranks_;
};

// The letter of a byte in a byte-level vocabulary.
std::string byte_letter(uint8_t byte);

}  // namespace encoder_engine
