// Greedy longest-match-first, as "Google's Neural Machine Translation System" (2016) introduced it.
#include "text/wordpiece.h"

#include <algorithm>

#include "text/text_view.h"

namespace encoder_engine {

wordpiece_model::wordpiece_model(wordpiece_vocabulary vocabulary)
    : prefix_size_(static_cast<int32_t>(vocabulary.continuation_prefix.size())),
      unknown_id_(vocabulary.unknown_id), max_word_characters_(vocabulary.max_word_characters) {
    auto& tokens = vocabulary.tokens;
    // An empty token can match nothing.
    tokens.erase(std::remove_if(tokens.begin(), tokens.end(),
                                [](const auto& token) { return token.first.empty(); }),
                 tokens.end());
    for (const auto& [token, id] : tokens) {
        const size_t place = static_cast<size_t>(id);
        if (place >= piece_sizes_.size()) piece_sizes_.resize(place + 1);
        piece_sizes_[place] = static_cast<int32_t>(token.size());
    }
    std::sort(tokens.begin(), tokens.end());
    trie_.build(tokens);
    continuation_ = trie_.walk(double_array_trie::kRoot, vocabulary.continuation_prefix);
}

void wordpiece_model::match(const uint8_t* word, int64_t size, pod_vector<int32_t>& ids) const {
    const int64_t first = ids.size();
    // Every piece takes at least one byte.
    ids.reserve_more(size + 1);
    int32_t start_node = double_array_trie::kRoot;
    for (int64_t at = 0; at < size;) {
        int32_t id = double_array_trie::kNone;
        int64_t end = at;
        int32_t node = start_node;
        for (int64_t i = at; node >= 0 && i < size; ++i) {
            node = trie_.child(node, word[i]);
            if (node >= 0 && trie_.value(node) >= 0) {
                id = trie_.value(node);
                end = i + 1;
            }
        }
        if (id < 0) {
            ids.truncate(first);
            ids.push(unknown_id_);
            return;
        }
        ids.push(id);
        at = end;
        start_node = continuation_;
    }
}

int32_t wordpiece_model::match_character(uint32_t code) const {
    if (max_word_characters_ < 1) return unknown_id_;
    uint8_t bytes[4];
    const int size = write_utf8(code, bytes);
    int32_t node = double_array_trie::kRoot;
    for (int i = 0; i < size && node >= 0; ++i) node = trie_.child(node, bytes[i]);
    if (node < 0 || trie_.value(node) < 0) return unknown_id_;
    return trie_.value(node);
}

}  // namespace encoder_engine
