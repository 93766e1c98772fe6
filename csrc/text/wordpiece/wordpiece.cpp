// Greedy longest-match-first, as "Google's Neural Machine Translation System" (2016) introduced it.
#include "text/wordpiece/wordpiece.h"

#include <algorithm>
#include <cstring>

#include "text/text_view.h"

namespace encoder_engine {
namespace {

word_key padded_key(const uint8_t* word, int64_t size) {
    uint8_t bytes[word_key::kMaxSize] = {};
    std::memcpy(bytes, word, static_cast<size_t>(size));
    return word_key::read(bytes, size);
}

}  // namespace

wordpiece_model::wordpiece_model(const vocabulary& tokens, const wordpiece_rules& rules) {
    const std::string& prefix = rules.continuation_prefix;
    numbers_ = {rules.max_word_characters, static_cast<int32_t>(prefix.size()), count_units(prefix),
                double_array_trie::kNone, rules.unknown_id};
    measure(tokens.tokens());
    keep_words(tokens.tokens());
    std::vector<std::pair<std::string_view, int32_t>> keys;
    keys.reserve(tokens.num_distinct());
    for (const uint32_t place : tokens.sorted()) {
        const std::string_view text = tokens.tokens().text(place);
        // An empty token can match nothing.
        if (!text.empty()) keys.emplace_back(text, tokens.tokens().id(place));
    }
    trie_.build(keys);
    numbers_.continuation = trie_.walk(double_array_trie::kRoot, prefix);
}

void wordpiece_model::measure(const token_list& tokens) {
    std::vector<int32_t> sizes, units;
    std::vector<character> characters;
    for (size_t i = 0; i < tokens.size(); ++i) {
        const std::string_view token = tokens.text(i);
        const int32_t id = tokens.id(i);
        const auto place = static_cast<size_t>(id);
        if (place >= sizes.size()) {
            sizes.resize(place + 1);
            units.resize(place + 1);
        }
        sizes[place] = static_cast<int32_t>(token.size());
        units[place] = count_units(token);
        if (token.empty() || token.size() > 4) continue;
        const auto* at = reinterpret_cast<const uint8_t*>(token.data());
        const uint8_t* end = at + token.size();
        const uint32_t code = read_utf8(at);
        if (at == end) characters.push_back({code, id});
    }
    std::sort(characters.begin(), characters.end(),
              [](const character& one, const character& other) { return one.code < other.code; });
    piece_sizes_ = std::move(sizes);
    piece_units_ = std::move(units);
    characters_ = std::move(characters);
}

void wordpiece_model::keep_words(const token_list& tokens) {
    std::vector<word_line> lines(size_t{1} << kLineBits, word_line{});
    // Of three that meet in a line the last, as a rule the more frequent, stay.
    for (size_t i = tokens.size(); i-- > 0;) {
        const std::string_view token = tokens.text(i);
        const auto size = static_cast<int64_t>(token.size());
        if (size == 0 || size > word_key::kMaxSize) continue;
        if (token.find('\0') != std::string_view::npos) continue;
        const word_key key = padded_key(reinterpret_cast<const uint8_t*>(token.data()), size);
        const int32_t id = tokens.id(i);
        lines[key.hash >> (64 - kLineBits)].insert(key, &id, 1);
    }
    words_ = std::move(lines);
}

void wordpiece_model::match(const uint8_t* word, int64_t size, pod_vector<int32_t>& ids) const {
    // Few words of other scripts are in a vocabulary as a whole. A key does not tell a zero at the
    // end, which an uncleaned text may have, from none.
    if (size > 0 && size <= word_key::kMaxSize && word[0] < 0x80 && word[size - 1] != 0) {
        ids.reserve_more(word_line::kMaxPieces);
        const word_key key = padded_key(word, size);
        if (line_of(key).find(key, ids.end()) > 0) return ids.extend(1);
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
            ids.push(numbers_.unknown_id);
            return;
        }
        ids.push(trie_.value(found));
        at = end;
        start_node = numbers_.continuation;
    }
}

int32_t wordpiece_model::match_character(uint32_t code) const {
    if (numbers_.max_word_characters < 1) return numbers_.unknown_id;
    const character* end = characters_.data() + characters_.size();
    const character* place = std::lower_bound(
        characters_.data(), end, code,
        [](const character& entry, uint32_t wanted) { return entry.code < wanted; });
    return place != end && place->code == code ? place->id : numbers_.unknown_id;
}

std::vector<uint32_t> wordpiece_model::characters() const {
    std::vector<uint32_t> codes(characters_.size());
    for (size_t i = 0; i < codes.size(); ++i) codes[i] = characters_[i].code;
    return codes;
}

}  // namespace encoder_engine
