// Shared by the plain Unigram implementations: tokens, UTF-8, and the search for the best path.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/model_pieces.h"

namespace encoder_engine {

struct slow_token {
    int32_t id;
    int32_t start, stop, word;
};

std::string to_utf8(uint32_t code);
std::vector<uint32_t> from_utf8(const std::string& text);

class slow_model {
public:
    explicit slow_model(const unigram_pieces& pieces);

    // Finds the best path through a text; among equal sums, the first found. Narrow sums are in
    // float32 and restart at 100,000.
    std::vector<path_piece> best_path(const std::vector<uint32_t>& text) const;
    // The id of exactly this piece, or path_piece::kUnknown.
    int32_t find(const std::string& piece) const;

private:
    struct scored {
        int32_t id;
        double score;
    };
    std::unordered_map<std::string, scored> pieces_;
    double unknown_score_;
    bool narrow_;
    size_t longest_ = 1;  // characters of a piece
};

}  // namespace encoder_engine
