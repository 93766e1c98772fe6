// Tokens and their ids, looked up either way; models are built from it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/token_list.h"

namespace encoder_engine {

class vocabulary {
public:
    // Of equal texts the last counts.
    explicit vocabulary(token_list tokens);

    const token_list& tokens() const { return tokens_; }
    // The places of the tokens in ascending order of their bytes; of equal tokens, the last.
    const std::vector<uint32_t>& sorted() const { return sorted_; }
    // The place of a text, or -1.
    int64_t find(std::string_view text) const;
    // The place of an id, or -1; ids must be in ascending order.
    int64_t find_id(int64_t id) const;
    // Whether each id is greater than the one before.
    bool ids_ascend() const;
    // Whether a vocab.txt with these bytes is this vocabulary: one token per line, ids from 0 on.
    // False where a carriage return ends a line.
    bool has_lines(std::string_view file) const;

private:
    token_list tokens_;
    std::vector<uint32_t> sorted_;
};

}  // namespace encoder_engine
