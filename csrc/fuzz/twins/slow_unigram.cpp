// Shares nothing with the encoder but the normalizers other than rules; all run over the whole text.
#include "fuzz/twins/slow_unigram.h"

#include <utility>

#include "fuzz/twins/drawn_rules.h"
#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

const charsmap_rules& table_of(const charsmap& compiled) {
    for (const rule_set& set : rule_sets()) {
        if (set.compiled.get() == &compiled) return set.table;
    }
    std::abort();
}

}  // namespace

slow_unigram::slow_unigram(const unigram_pieces& pieces, unigram_options options)
    : model_(pieces), options_(std::move(options)) {}

sourced_text slow_unigram::normalize(const std::vector<uint32_t>& text) const {
    sourced_text chars;
    for (size_t i = 0; i < text.size(); ++i) chars.append({text[i], static_cast<int32_t>(i)});
    for (const normalizer_step& step : options_.steps) {
        sourced_text out;
        if (step.kind == normalizer_kind::charsmap) {
            apply_rules(table_of(*step.rules), chars, out);
        } else {
            step_normalizer::apply(step, chars, out, {true, true});
        }
        chars.swap(out);
    }
    return chars;
}

// White space goes; of what stands between, a word begins at every mark.
std::vector<slow_unigram::characters> slow_unigram::split(const sourced_text& text) const {
    const unigram_splitting& splitting = options_.splitting;
    std::vector<characters> parts(1);
    for (int64_t i = 0; i < text.size(); ++i) {
        if (splitting.white_space && (unicode_properties(text[i].code) & kUnicodeWhitespace) != 0) {
            parts.emplace_back();
        } else {
            parts.back().push_back(text[i]);
        }
    }
    std::vector<characters> words;
    for (characters& part : parts) {
        if (part.empty()) continue;
        if (!splitting.metaspace) {
            words.push_back(part);
            continue;
        }
        for (sourced_char& c : part) c.code = c.code == ' ' ? splitting.mark : c.code;
        if (splitting.scheme == prepend_scheme::always && part.front().code != splitting.mark) {
            part.insert(part.begin(), {splitting.mark, part.front().source});
        }
        words.emplace_back();
        for (const sourced_char& c : part) {
            if (splitting.split && c.code == splitting.mark && !words.back().empty()) {
                words.emplace_back();
            }
            words.back().push_back(c);
        }
    }
    return words;
}

void slow_unigram::add_word(const characters& chars, int32_t word,
                            std::vector<slow_token>& out) const {
    std::vector<uint32_t> codes;
    for (const sourced_char& c : chars) codes.push_back(c.code);
    characters unknown;
    int64_t start = 0;
    for (const path_piece& piece : model_.best_path(codes)) {
        if (piece.id == path_piece::kUnknown || piece.id == options_.ids.unknown) {
            unknown.insert(unknown.end(), chars.begin() + start, chars.begin() + piece.stop);
        } else {
            add_unknown(unknown, word, out);
            unknown.clear();
            const sourced_char& last = chars[static_cast<size_t>(piece.stop - 1)];
            out.push_back({piece.id, chars[static_cast<size_t>(start)].source, last.source + 1, word});
        }
        start = piece.stop;
    }
    add_unknown(unknown, word, out);
}

// Unknown characters in a row are one token, or all of their bytes.
void slow_unigram::add_unknown(const characters& unknown, int32_t word,
                               std::vector<slow_token>& out) const {
    if (unknown.empty()) return;
    std::string bytes;
    for (const sourced_char& c : unknown) bytes += to_utf8(c.code);
    bool spelled = !options_.ids.bytes.empty();
    for (const char byte : bytes) {
        spelled = spelled && options_.ids.bytes[static_cast<uint8_t>(byte)] >= 0;
    }
    const auto add = [&](int32_t id) {
        out.push_back({id, unknown.front().source, unknown.back().source + 1, word});
    };
    if (const int32_t known = model_.find(bytes); known != path_piece::kUnknown) return add(known);
    if (!spelled) return add(options_.ids.unknown);
    for (const char byte : bytes) add(options_.ids.bytes[static_cast<uint8_t>(byte)]);
}

std::vector<slow_token> slow_unigram::encode(const std::vector<uint32_t>& text) const {
    std::vector<slow_token> out;
    int32_t word = 0;
    for (const characters& chars : split(normalize(text))) add_word(chars, word++, out);
    return out;
}

}  // namespace encoder_engine
