// Greedy longest-match-first, as "Google's Neural Machine Translation System" (2016) introduced it.
#include "text/wordpiece.h"

#include <algorithm>
#include <cstring>

#include "text/text_view.h"

namespace encoder_engine {
namespace {

// 16-bit units of UTF-8 text: one for each character, two from four bytes on.
int32_t count_units(const std::string& text) {
    int32_t count = 0;
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        count += ((byte & 0xC0) != 0x80) + (byte >= 0xF0);
    }
    return count;
}

word_key padded_key(const uint8_t* word, int64_t size) {
    uint8_t bytes[word_key::kMaxSize] = {};
    std::memcpy(bytes, word, static_cast<size_t>(size));
    return word_key::read(bytes, size);
}

}  // namespace

wordpiece_model::wordpiece_model(wordpiece_vocabulary vocabulary)
    : prefix_size_(static_cast<int32_t>(vocabulary.continuation_prefix.size())),
      prefix_units_(count_units(vocabulary.continuation_prefix)),
      unknown_id_(vocabulary.unknown_id), max_word_characters_(vocabulary.max_word_characters) {
    auto& tokens = vocabulary.tokens;
    // An empty token can match nothing.
    tokens.erase(std::remove_if(tokens.begin(), tokens.end(),
                                [](const auto& token) { return token.first.empty(); }),
                 tokens.end());
    for (const auto& [token, id] : tokens) {
        const size_t place = static_cast<size_t>(id);
        if (place >= piece_sizes_.size()) {
            piece_sizes_.resize(place + 1);
            piece_units_.resize(place + 1);
        }
        piece_sizes_[place] = static_cast<int32_t>(token.size());
        piece_units_[place] = count_units(token);
    }
    // Of three that meet in a line the lower ids, as a rule the more frequent, stay.
    for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) {
        const auto size = static_cast<int64_t>(token->first.size());
        if (size > word_key::kMaxSize || token->first.find('\0') != std::string::npos) continue;
        words_.insert(padded_key(reinterpret_cast<const uint8_t*>(token->first.data()), size),
                      &token->second, 1);
    }
    std::sort(tokens.begin(), tokens.end());
    trie_.build(tokens);
    continuation_ = trie_.walk(double_array_trie::kRoot, vocabulary.continuation_prefix);
}

void wordpiece_model::match(const uint8_t* word, int64_t size, pod_vector<int32_t>& ids) const {
    // Few words of other scripts are in a vocabulary as a whole. A key does not tell a zero at the
    // end, which an uncleaned text may have, from none.
    if (size > 0 && size <= word_key::kMaxSize && word[0] < 0x80 && word[size - 1] != 0) {
        ids.reserve_more(word_cache::kMaxPieces);
        if (words_.find(padded_key(word, size), ids.end()) > 0) return ids.extend(1);
    }
    match_pieces(word, size, ids);
}

void wordpiece_model::match_pieces(const uint8_t* word, int64_t size,
                                   pod_vector<int32_t>& ids) const {
    const int64_t first = ids.size();
    // Every piece takes at least one byte.
    ids.reserve_more(size + 1);
    int32_t start_node = double_array_trie::kRoot;
    for (int64_t at = 0; at < size;) {
        int32_t found = double_array_trie::kNone;
        int64_t end = at;
        int32_t node = start_node;
        for (int64_t i = at; node >= 0 && i < size; ++i) {
            node = trie_.child(node, word[i]);
            if (node >= 0 && trie_.has_value(node)) {
                found = node;
                end = i + 1;
            }
        }
        if (found < 0) {
            ids.truncate(first);
            ids.push(unknown_id_);
            return;
        }
        ids.push(trie_.value(found));
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
