// Unigram step by step, each on the whole text: the twin that fuzzing compares with.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/unigram_encoder.h"

namespace encoder_engine {

class slow_unigram {
public:
    slow_unigram(const unigram_pieces& pieces, const unigram_options& options);

    // The ids of a text without lone surrogates and added tokens.
    std::vector<int32_t> encode(const std::vector<uint32_t>& text) const;

private:
    std::vector<std::vector<uint32_t>> split(const std::vector<uint32_t>& text) const;
    void best_path(const std::vector<uint32_t>& word, std::vector<int32_t>& ids) const;
    void close_unknown(std::string& bytes, std::vector<int32_t>& ids) const;

    struct scored {
        int32_t id;
        double score;
    };
    std::unordered_map<std::string, scored> pieces_;
    unigram_normalizer normalizer_;
    unigram_splitting splitting_;
    unigram_ids ids_;
    double unknown_score_;
    size_t longest_ = 1;  // bytes, and so at least the characters, of a piece
};

}  // namespace encoder_engine
