// Python values of the parts of all encoders: added tokens and row templates.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "text/added_tokens.h"
#include "text/batch/encode_batch.h"

namespace encoder_engine {

// Content, id, single_word, lstrip, rstrip, normalized.
using added_tuple = std::tuple<std::u32string, int32_t, bool, bool, bool, bool>;
// Kind, in the order of piece_kind, and the ids of a special piece.
using piece_tuple = std::tuple<int, std::vector<int32_t>>;

inline row_template read_template(const std::vector<piece_tuple>& pieces) {
    row_template out;
    for (const auto& [kind, ids] : pieces) {
        out.pieces.push_back({static_cast<piece_kind>(kind), ids});
    }
    return out;
}

inline std::vector<added_token> read_added(const std::vector<added_tuple>& tuples) {
    std::vector<added_token> out;
    for (const auto& [content, id, single_word, lstrip, rstrip, normalized] : tuples) {
        out.push_back({{content.begin(), content.end()}, id, single_word, lstrip, rstrip, normalized});
    }
    return out;
}

}  // namespace encoder_engine
