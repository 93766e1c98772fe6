// Tokens and their ids, to be looked up either way; what models are built from.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/token_list.h"

namespace encoder_engine {

class vocabulary {
public:
    // From UTF-8 texts. Of equal ones the last counts.
    explicit vocabulary(token_list tokens);

    const token_list& tokens() const { return tokens_; }
    // The places of the tokens in ascending order of their bytes, of equal ones the last.
    const std::vector<uint32_t>& sorted() const { return sorted_; }
    // The place of a text, or -1.
    int64_t find(std::string_view text) const;
    // The place of an id, or -1; ids must be in ascending order.
    int64_t find_id(int64_t id) const;
    // Whether each id is greater than the one before.
    bool ids_ascend() const;
    // Whether a vocab.txt of these bytes is this vocabulary: a token a line, ids from 0 on, no token
    // empty or with white space at its ends. False as well where that is not certain.
    bool has_lines(std::string_view file) const;

private:
    token_list tokens_;
    std::vector<uint32_t> sorted_;
};

}  // namespace encoder_engine
