// Shares nothing with the encoder.
#include "fuzz/twins/slow_sentencepiece.h"

#include <algorithm>
#include <utility>

namespace encoder_engine {

slow_sentencepiece::slow_sentencepiece(const unigram_pieces& pieces, const charsmap_rules& rules,
                                       sentencepiece_options options)
    : model_(pieces), options_(std::move(options)), mark_(options_.escape_whitespaces ? 0x2581 : ' ') {
    const auto add = [&](std::map<characters, characters>& to, const std::string& key,
                         const std::string& replacement) {
        const characters codes = from_utf8(key);
        longest_ = std::max(longest_, codes.size());
        to[codes] = from_utf8(replacement);
    };
    for (const auto& [key, replacement] : rules) add(rules_, key, replacement);
    for (const std::string& symbol : options_.symbols) add(symbols_, symbol, symbol);
}

// The longest symbol, else the longest rule, else the character itself.
slow_sentencepiece::characters slow_sentencepiece::next(const characters& text, size_t at,
                                                        size_t& taken) const {
    for (const auto* table : {&symbols_, &rules_}) {
        for (taken = std::min(longest_, text.size() - at); taken > 0; --taken) {
            const auto first = text.begin() + static_cast<std::ptrdiff_t>(at);
            const auto found =
                table->find(characters(first, first + static_cast<std::ptrdiff_t>(taken)));
            if (found != table->end()) return found->second;
        }
    }
    taken = 1;
    return {text[at]};
}

slow_sentencepiece::characters slow_sentencepiece::normalize(const characters& text,
                                                             std::vector<int32_t>& sources) const {
    const bool removes = options_.remove_extra_whitespaces;
    characters out;
    const auto put = [&](uint32_t code, size_t source) {
        out.push_back(code);
        sources.push_back(static_cast<int32_t>(source));
    };
    size_t at = 0, taken = 0;
    while (removes && at < text.size() && next(text, at, taken) == characters{' '}) at += taken;
    const bool empty = at == text.size();
    const bool prefix = options_.add_dummy_prefix && !empty;
    if (prefix && !options_.whitespace_as_suffix) put(mark_, at);
    bool after_space = removes;
    for (; at < text.size(); at += taken) {
        characters form = next(text, at, taken);
        while (after_space && !form.empty() && form.front() == ' ') form.erase(form.begin());
        for (const uint32_t code : form) put(code == ' ' ? mark_ : code, at);
        if (!form.empty()) after_space = removes && form.back() == ' ';
    }
    size_t end = text.size();
    while (removes && !out.empty() && out.back() == mark_) {
        end = static_cast<size_t>(sources.back());
        out.pop_back();
        sources.pop_back();
    }
    if (prefix && options_.whitespace_as_suffix) put(mark_, end);
    sources.push_back(static_cast<int32_t>(end));
    return out;
}

// A word begins at every mark but the first character, or behind every mark.
int32_t slow_sentencepiece::word_of(const characters& text, int64_t at) const {
    const int64_t shift = options_.whitespace_as_suffix ? 0 : 1;
    return static_cast<int32_t>(std::count(text.begin() + shift, text.begin() + at + shift, mark_));
}

std::vector<slow_token> slow_sentencepiece::encode(const std::vector<uint32_t>& text) const {
    std::vector<int32_t> sources;
    const characters normal = normalize(text, sources);
    std::vector<slow_token> out;
    size_t start = 0;
    bool after_unknown = false;
    for (const path_piece& piece : model_.best_path(normal)) {
        const auto stop = static_cast<size_t>(piece.stop);
        const int32_t first = sources[start], last = sources[stop];
        const int32_t word = word_of(normal, static_cast<int64_t>(start));
        const bool unknown = piece.id == path_piece::kUnknown;
        if (!unknown) {
            out.push_back({piece.id, first, last, word});
        } else if (!options_.byte_ids.empty()) {
            for (const char byte : to_utf8(normal[start])) {
                out.push_back({options_.byte_ids[static_cast<uint8_t>(byte)], first, first, word});
            }
            out.back().stop = last;
        } else if (after_unknown) {
            out.back().stop = last;
        } else {
            out.push_back({options_.unknown_id, first, last, word});
        }
        after_unknown = unknown;
        start = stop;
    }
    return out;
}

}  // namespace encoder_engine
