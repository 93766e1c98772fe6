// Models written down piece by piece, for tests, fuzz targets and their twins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/unigram/model.h"
#include "text/wordpiece/wordpiece.h"

namespace encoder_engine {

struct wordpiece_vocabulary : wordpiece_rules {
    std::vector<std::pair<std::string, int32_t>> tokens;
};

struct unigram_pieces : unigram_scoring {
    struct piece {
        std::string text;
        int32_t id;
        double score;
    };
    std::vector<piece> pieces;
};

inline std::shared_ptr<wordpiece_model> make_model(const wordpiece_vocabulary& from) {
    token_list tokens;
    for (const auto& [text, id] : from.tokens) tokens.add(text, id);
    return std::make_shared<wordpiece_model>(vocabulary(std::move(tokens)), from);
}

inline std::shared_ptr<unigram_model> make_model(const unigram_pieces& from) {
    token_list tokens;
    std::vector<double> scores;
    for (const unigram_pieces::piece& piece : from.pieces) {
        tokens.add(piece.text, piece.id);
        scores.push_back(piece.score);
    }
    return std::make_shared<unigram_model>(vocabulary(std::move(tokens)), scores.data(), from);
}

}  // namespace encoder_engine
