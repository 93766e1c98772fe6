// Shares nothing with the encoder but the generated Unicode tables.
#include "fuzz/twins/slow_wordpiece.h"

#include <algorithm>

#include "text/text_view.h"
#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

std::string to_utf8(const std::vector<uint32_t>& codes, size_t first, size_t last) {
    std::string out;
    for (size_t i = first; i < last; ++i) {
        uint8_t bytes[4];
        const int size = write_utf8(codes[i], bytes);
        out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    }
    return out;
}

std::vector<uint32_t> clean(const std::vector<uint32_t>& text) {
    std::vector<uint32_t> out;
    for (const uint32_t code : text) {
        const uint32_t flags = unicode_properties(code);
        if ((flags & kUnicodeRemoved) != 0) continue;
        out.push_back((flags & kUnicodeWhitespace) != 0 ? ' ' : code);
    }
    return out;
}

std::vector<uint32_t> space_cjk(const std::vector<uint32_t>& text) {
    std::vector<uint32_t> out;
    for (const uint32_t code : text) {
        if (unicode_is_cjk(code)) {
            out.insert(out.end(), {' ', code, ' '});
        } else {
            out.push_back(code);
        }
    }
    return out;
}

// Canonical decomposition, combining characters in canonical order.
std::vector<uint32_t> decompose(const std::vector<uint32_t>& text) {
    std::vector<uint32_t> out;
    for (const uint32_t code : text) {
        uint32_t parts[kMaxDecomposition];
        const int count = unicode_decompose(code, parts);
        out.insert(out.end(), parts, parts + count);
    }
    for (auto run = out.begin(); run != out.end();) {
        if (unicode_combining_class(*run) == 0) {
            ++run;
            continue;
        }
        const auto stop = std::find_if(run, out.end(), [](uint32_t code) {
            return unicode_combining_class(code) == 0;
        });
        std::stable_sort(run, stop, [](uint32_t a, uint32_t b) {
            return unicode_combining_class(a) < unicode_combining_class(b);
        });
        run = stop;
    }
    return out;
}

}  // namespace

slow_wordpiece::slow_wordpiece(const wordpiece_vocabulary& vocabulary,
                               const normalizer_options& options)
    : pieces_(vocabulary.tokens.begin(), vocabulary.tokens.end()), options_(options),
      unknown_id_(vocabulary.unknown_id), prefix_(vocabulary.continuation_prefix),
      max_word_characters_(vocabulary.max_word_characters) {}

std::vector<uint32_t> slow_wordpiece::normalize(const std::vector<uint32_t>& text) const {
    std::vector<uint32_t> codes = options_.clean_text ? clean(text) : text;
    if (options_.handle_cjk) codes = space_cjk(codes);
    if (options_.strip_accents) {
        codes = decompose(codes);
        codes.erase(std::remove_if(codes.begin(), codes.end(),
                                   [](uint32_t code) {
                                       return (unicode_properties(code) & kUnicodeMark) != 0;
                                   }),
                    codes.end());
    }
    if (!options_.lowercase) return codes;
    std::vector<uint32_t> lowered;
    for (const uint32_t code : codes) {
        uint32_t parts[2];
        const int count = unicode_lowercase(code, parts);
        lowered.insert(lowered.end(), parts, parts + count);
    }
    return lowered;
}

void slow_wordpiece::match(const std::vector<uint32_t>& word, std::vector<int32_t>& ids) const {
    if (word.empty()) return;
    if (static_cast<int64_t>(word.size()) > max_word_characters_) {
        ids.push_back(unknown_id_);
        return;
    }
    const size_t before = ids.size();
    for (size_t first = 0; first < word.size();) {
        size_t last = word.size();
        auto found = pieces_.end();
        for (; last > first && found == pieces_.end(); --last) {
            found = pieces_.find((first == 0 ? "" : prefix_) + to_utf8(word, first, last));
        }
        if (found == pieces_.end()) {
            ids.resize(before);
            ids.push_back(unknown_id_);
            return;
        }
        ids.push_back(found->second);
        first = last + 1;
    }
}

std::vector<int32_t> slow_wordpiece::encode(const std::vector<uint32_t>& text) const {
    std::vector<int32_t> ids;
    std::vector<uint32_t> word;
    for (const uint32_t code : normalize(text)) {
        const uint32_t flags = unicode_properties(code);
        const bool space = (flags & kUnicodeWhitespace) != 0;
        if (!space && (flags & kUnicodePunctuation) == 0) {
            word.push_back(code);
            continue;
        }
        match(word, ids);
        word.clear();
        if (!space) match({code}, ids);
    }
    match(word, ids);
    return ids;
}

}  // namespace encoder_engine
