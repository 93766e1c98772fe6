// The trie of added tokens, and the two character classes their options speak of.
#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode/tables.h"

namespace encoder_engine {

std::vector<added_token> added_tokens_where(const std::vector<added_token>& tokens, bool normalized) {
    std::vector<added_token> out;
    for (const added_token& token : tokens) {
        if (token.normalized == normalized) out.push_back(token);
    }
    return out;
}

added_token_set::added_token_set(std::vector<added_token> tokens)
    : tokens_(std::move(tokens)), ends_{-1}, inner_{false} {
    for (size_t index = 0; index < tokens_.size(); ++index) {
        int32_t node = 0;
        max_size_ = std::max(max_size_, static_cast<int64_t>(tokens_[index].content.size()));
        for (const uint32_t code : tokens_[index].content) {
            const auto [edge, fresh] =
                edges_.emplace(edge_key(node, code), static_cast<int32_t>(ends_.size()));
            if (fresh) {
                if (node == 0) first_codes_.push_back(code);
                ends_.push_back(-1);
                inner_.push_back(false);
                inner_[static_cast<size_t>(node)] = true;
            }
            node = edge->second;
        }
        ends_[node] = static_cast<int32_t>(index);
    }
}

bool is_strip_space(uint32_t code) { return (unicode_properties(code) & kUnicodeWhitespace) != 0; }

bool is_word_character(uint32_t code) { return (unicode_properties(code) & kUnicodeWord) != 0; }

}  // namespace encoder_engine
