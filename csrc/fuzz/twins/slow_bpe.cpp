// Normalizes all of a text, cuts it by the matcher, and merges each word one pair at a time.
#include "fuzz/twins/slow_bpe.h"

#include <algorithm>

#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

uint8_t class_of(uint32_t code) {
    const uint32_t category = unicode_category(code);
    if (category == kUnicodeLetter) return kLetterClass;
    if (category == kUnicodeNumber) return kNumberClass;
    if (is_strip_space(code)) {
        const bool newline = code == '\n' || code == '\r';
        return static_cast<uint8_t>(kSpaceClass | (code == ' ' ? kBlankClass : 0) |
                                    (newline ? kNewlineClass : 0));
    }
    return code == '\'' ? kQuoteClass : 0;
}

}  // namespace

std::string byte_letter(uint8_t byte) {
    const auto printable = [](int b) { return (b >= 0x21 && b < 0x7F) || (b >= 0xA1 && b != 0xAD); };
    if (printable(byte)) return to_utf8(byte);
    uint32_t place = 0;
    for (int b = 0; b < byte; ++b) place += !printable(b);
    return to_utf8(0x100 + place);
}

slow_bpe::slow_bpe(bpe_file file) : file_(std::move(file)) {
    for (size_t id = 0; id < file_.tokens.size(); ++id) ids_[file_.tokens[id]] = static_cast<int32_t>(id);
    for (size_t rank = 0; rank < file_.merges.size(); ++rank) ranks_[file_.merges[rank]] = rank;
}

int32_t slow_bpe::id_of(const std::string& text) const {
    const auto found = ids_.find(text);
    return found == ids_.end() ? -1 : found->second;
}

std::vector<slow_bpe::symbol> slow_bpe::symbols_of(const sourced_char* chars, int64_t count) const {
    std::vector<symbol> out;
    bool joins = false;  // with an unknown character before
    for (int64_t i = 0; i < count; ++i) {
        const int32_t start = chars[i].source;
        const std::string text = to_utf8(chars[i].code);
        if (file_.rules.symbols == bpe_symbols::bytes) {
            for (size_t at = 0; at < text.size(); ++at) {
                std::string letter = byte_letter(static_cast<uint8_t>(text[at]));
                if (i + 1 == count && at + 1 == text.size()) letter += file_.rules.suffix;
                out.push_back({letter, id_of(letter), start, start + 1});
            }
            continue;
        }
        const bool known = id_of(text) >= 0;
        if (known) {
            out.push_back({text, id_of(text), start, start + 1});
        } else if (file_.rules.byte_fallback) {
            for (const char c : text) {
                char name[8];
                std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(static_cast<uint8_t>(c)));
                out.push_back({name, id_of(name), start, start + 1});
            }
        } else if (joins && file_.rules.fuse_unknown) {
            out.back().stop = start + 1;
        } else {
            out.push_back({"", file_.rules.unknown, start, start + 1});
        }
        joins = !known && !file_.rules.byte_fallback;
    }
    return out;
}

void slow_bpe::merge(std::vector<symbol>& symbols) const {
    for (;;) {
        size_t best = ranks_.size() + file_.merges.size(), at = symbols.size();
        for (size_t i = 0; i + 1 < symbols.size(); ++i) {
            const auto found = ranks_.find({symbols[i].text, symbols[i + 1].text});
            if (found == ranks_.end() || found->second >= best) continue;
            best = found->second;
            at = i;
        }
        if (at == symbols.size()) return;
        symbols[at].text += symbols[at + 1].text;
        symbols[at].id = id_of(symbols[at].text);
        symbols[at].stop = symbols[at + 1].stop;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
}

std::vector<slow_token> slow_bpe::encode(const std::vector<uint32_t>& text) const {
    sourced_text chars, spare;
    for (size_t i = 0; i < text.size(); ++i) chars.append({text[i], static_cast<int32_t>(i)});
    step_normalizer(file_.steps).run(chars, spare, {true, true});
    if (chars.empty()) return {};
    const bpe_splitting& how = file_.splitting;
    const uint32_t mark = bpe_model::kMark;
    for (int64_t i = 0; how.metaspace && i < chars.size(); ++i) {
        if (chars[i].code == ' ') chars[i].code = mark;
    }
    const bool first = how.scheme == prepend_scheme::first && chars[0].source == 0;
    const bool prepends = how.metaspace && (how.scheme == prepend_scheme::always || first);
    sourced_text whole;
    if (how.prefix && chars[0].code != ' ') whole.append({' ', chars[0].source});
    if (prepends && chars[0].code != mark) whole.append({mark, chars[0].source});
    whole.append(chars.data(), chars.size());
    // One byte a character: the matcher needs classes only.
    std::vector<uint8_t> bytes, classes;
    uint8_t ascii[128];
    for (uint32_t code = 0; code < 128; ++code) ascii[code] = class_of(code);
    for (int64_t i = 0; i < whole.size(); ++i) {
        const uint32_t code = whole[i].code;
        const bool is_mark = how.pattern == word_pattern::marks && code == mark;
        bytes.push_back(is_mark ? ' ' : code < 128 ? static_cast<uint8_t>(code) : 0xFF);
        classes.push_back(class_of(code));
        if (how.pattern == word_pattern::marks && code == ' ') bytes.back() = 0xFF;
        if (how.pattern == word_pattern::marks && code == ' ') classes.back() = 0;
        // As U+017F, which contractions know by its bytes.
        if (code == 0x17F) {
            bytes.back() = 0xC5;
            bytes.push_back(0xBF);
            classes.push_back(class_of(code));
            // Its second byte is no character: give it the same source, and no symbol.
            whole.append({0, 0});
            std::memmove(whole.data() + i + 2, whole.data() + i + 1,
                         static_cast<size_t>(whole.size() - i - 2) * sizeof(sourced_char));
            whole[i + 1] = {kUnicodeEnd, whole[i].source};
            ++i;
        }
    }
    const classed_text classed{bytes.data(), classes.data(), ascii, whole.size(), true};
    const bool by_segment = how.pattern == word_pattern::blanks || how.pattern == word_pattern::whole;
    std::vector<slow_token> out;
    int32_t word = 0;
    for (int64_t at = 0; at < whole.size();) {
        word_matcher matcher(how.pattern, classed);
        const int64_t end = by_segment ? whole.size() : matcher.match(at);
        std::vector<sourced_char> inside;
        for (int64_t i = at; i < end; ++i) {
            if (whole[i].code != kUnicodeEnd) inside.push_back(whole[i]);
        }
        const bool skipped = how.pattern == word_pattern::clip && class_of(inside[0].code) & kSpaceClass;
        at = end;
        if (skipped) continue;
        std::string all;
        for (const sourced_char& c : inside) {
            for (const char byte : to_utf8(c.code)) all += byte_letter(static_cast<uint8_t>(byte));
        }
        std::vector<symbol> symbols = symbols_of(inside.data(), static_cast<int64_t>(inside.size()));
        if (file_.rules.ignore_merges && id_of(all) >= 0) {
            symbols = {{all, id_of(all), symbols.front().start, symbols.back().stop}};
        } else {
            merge(symbols);
        }
        for (const symbol& s : symbols) out.push_back({s.id, s.start, s.stop, word});
        ++word;
    }
    return out;
}

}  // namespace encoder_engine
