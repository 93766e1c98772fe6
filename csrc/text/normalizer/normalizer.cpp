// Each normalizer as the library does it, the alignment of characters included.
#include "text/normalizer/normalizer.h"

#include <algorithm>

#include "text/added_tokens.h"
#include "text/unicode/grapheme.h"
#include "text/text_view.h"
#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

// Clusters of more bytes are taken apart before rules are looked up.
constexpr int64_t kMaxClusterBytes = 5;

// A new character; `change` above 0 makes it extra, else it takes the place of the next old character
// and of so many behind it.
struct change_char {
    uint32_t code;
    int32_t change;
    uint32_t order;  // combining class, where it matters
};
using changed_text = std::vector<change_char>;

// Aligns new characters with old ones; returns whether they took all places.
bool transform(const sourced_text& old, const changed_text& fresh, sourced_text& out) {
    int64_t taken = 0;
    out.reserve_more(static_cast<int64_t>(fresh.size()));
    for (const change_char& c : fresh) {
        const int64_t place = c.change > 0 ? taken - 1 : taken;
        out.push({c.code, old[std::max<int64_t>(place, 0)].source});
        if (c.change <= 0) taken += 1 - c.change;
    }
    return taken == old.size();
}

// Writes what replaces `count` old characters.
void put_rule(const charsmap::rule& rule, int32_t count, changed_text& out) {
    const uint8_t* at = rule.text;
    const uint8_t* end = at + rule.text_size;
    int32_t written = 0;
    for (; at < end; ++written) out.push_back({read_utf8(at), written >= count, 0});
    // Places left over go to the character before, whatever it stands for, if there is one.
    if (written < count && !out.empty()) out.back().change -= count - written;
}

// Replaces one cluster of characters.
void put_cluster(const charsmap& rules, const sourced_char* chars, int64_t count,
                 changed_text& out) {
    uint8_t whole[kMaxClusterBytes + 4];
    int64_t size = 0;
    for (int64_t i = 0; i < count && size <= kMaxClusterBytes; ++i) {
        size += write_utf8(chars[i].code, whole + size);
    }
    if (size <= kMaxClusterBytes) {
        const charsmap::rule rule = rules.shortest(whole, size);
        if (rule.size > 0) return put_rule(rule, static_cast<int32_t>(count), out);
    }
    for (int64_t i = 0; i < count; ++i) {
        uint8_t bytes[4];
        const charsmap::rule rule = rules.shortest(bytes, write_utf8(chars[i].code, bytes));
        if (rule.size > 0) {
            put_rule(rule, 1, out);
        } else {
            out.push_back({chars[i].code, 0, 0});
        }
    }
}

bool apply_charsmap(const charsmap& rules, const sourced_text& text, sourced_text& out,
                    bool first) {
    changed_text fresh;
    grapheme_cursor cursor;
    int64_t start = 0, vanished = 0;
    const auto put = [&](int64_t stop) {
        put_cluster(rules, text.data() + start, stop - start, fresh);
        start = stop;
        if (fresh.empty()) vanished = stop;
    };
    for (int64_t i = 0; i < text.size(); ++i) {
        if (cursor.take(text[i].code) && i > start) put(i);
    }
    if (start < text.size()) put(text.size());
    // Within a segment there is a character before, which took the places of what vanished.
    if (!first && vanished > 0) {
        sourced_text rest;
        rest.append(text.data() + vanished, text.size() - vanished);
        return transform(rest, fresh, out);
    }
    return transform(text, fresh, out) || fresh.empty();
}

void put_content(const normalizer_step& step, int32_t source, sourced_text& out) {
    for (const uint32_t code : step.content) out.append({code, source});
}

void replace_pattern(const normalizer_step& step, const sourced_text& text, sourced_text& out) {
    const auto size = static_cast<int64_t>(step.pattern.size());
    for (int64_t i = 0; i < text.size();) {
        int64_t matched = 0;
        while (matched < size && i + matched < text.size() &&
               text[i + matched].code == step.pattern[static_cast<size_t>(matched)]) {
            ++matched;
        }
        if (matched == size) {
            i += size;
            put_content(step, text[i - 1].source, out);
        } else {
            out.append(text[i++]);
        }
    }
}

void replace_runs(const normalizer_step& step, const sourced_text& text, sourced_text& out) {
    const auto in_run = [&](uint32_t code) {
        return step.white_space ? is_strip_space(code) : code == ' ';
    };
    for (int64_t i = 0; i < text.size();) {
        int64_t end = i;
        while (end < text.size() && in_run(text[end].code)) ++end;
        const bool single = std::find(step.pattern.begin(), step.pattern.end(), text[i].code) !=
                            step.pattern.end();
        if (end - i >= step.least) {
            put_content(step, text[end - 1].source, out);
            i = end;
        } else if (single) {
            put_content(step, text[i].source, out);
            ++i;
        } else {
            out.append(text[i++]);
        }
    }
}

changed_text decompose(const sourced_text& text, bool compatibility) {
    changed_text out;
    size_t marks_from = 0;
    const auto sort_marks = [&] {
        std::stable_sort(out.begin() + static_cast<std::ptrdiff_t>(marks_from), out.end(),
                         [](const change_char& a, const change_char& b) { return a.order < b.order; });
    };
    for (int64_t i = 0; i < text.size(); ++i) {
        uint32_t parts[kMaxCompatibility];
        const int count = compatibility ? unicode_decompose_compatibility(text[i].code, parts)
                                        : unicode_decompose(text[i].code, parts);
        for (int j = 0; j < count; ++j) {
            const uint32_t order = unicode_combining_class(parts[j]);
            if (order == 0) sort_marks();
            out.push_back({parts[j], j > 0, order});
            if (order == 0) marks_from = out.size();
        }
    }
    sort_marks();
    return out;
}

void compose(changed_text& text) {
    constexpr size_t kNone = static_cast<size_t>(-1);
    size_t size = 0, base = kNone;
    uint32_t last = 0;  // combining class of the last character that stayed
    for (const change_char c : text) {
        const bool blocked = base == kNone || (base + 1 != size && last >= c.order);
        const uint32_t composed = blocked ? 0 : unicode_compose(text[base].code, c.code);
        if (composed != 0) {
            text[base].code = composed;
            text[base].change += c.change - 1;
            continue;
        }
        text[size++] = c;
        last = c.order;
        if (c.order == 0) base = size - 1;
    }
    text.resize(size);
}

void apply_form(normalizer_kind kind, const sourced_text& text, sourced_text& out) {
    changed_text chars =
        decompose(text, kind == normalizer_kind::nfkc || kind == normalizer_kind::nfkd);
    if (kind == normalizer_kind::nfc || kind == normalizer_kind::nfkc) compose(chars);
    transform(text, chars, out);
}

void strip(const normalizer_step& step, const sourced_text& text, sourced_text& out,
           segment_edges edges) {
    int64_t start = 0, stop = text.size();
    if (step.left && edges.first) {
        while (start < stop && is_strip_space(text[start].code)) ++start;
    }
    if (step.right && edges.last) {
        while (start < stop && is_strip_space(text[stop - 1].code)) --stop;
    }
    out.append(text.data() + start, stop - start);
}

template <typename Char>
status copy_text(const text_view& text, sourced_text& out) {
    const Char* chars = static_cast<const Char*>(text.data);
    out.reserve_more(text.length);
    for (int64_t i = 0; i < text.length; ++i) {
        const uint32_t code = chars[i];
        if (code >= 0xD800 && code < 0xE000) return {error_code::lone_surrogate, -1, i, false};
        out.push({code, static_cast<int32_t>(i)});
    }
    return {};
}

}  // namespace

bool step_normalizer::apply(const normalizer_step& step, const sourced_text& text,
                               sourced_text& out, segment_edges edges) {
    out.clear();
    switch (step.kind) {
        case normalizer_kind::charsmap: return apply_charsmap(*step.rules, text, out, edges.first);
        case normalizer_kind::replace: replace_pattern(step, text, out); break;
        case normalizer_kind::replace_runs: replace_runs(step, text, out); break;
        case normalizer_kind::nfc:
        case normalizer_kind::nfd:
        case normalizer_kind::nfkc:
        case normalizer_kind::nfkd: apply_form(step.kind, text, out); break;
        case normalizer_kind::strip_accents:
            for (int64_t i = 0; i < text.size(); ++i) {
                if ((unicode_properties(text[i].code) & kUnicodeAnyMark) == 0) out.append(text[i]);
            }
            break;
        case normalizer_kind::lowercase:
            for (int64_t i = 0; i < text.size(); ++i) {
                uint32_t lower[2];
                const int count = unicode_lowercase(text[i].code, lower);
                for (int j = 0; j < count; ++j) out.append({lower[j], text[i].source});
            }
            break;
        case normalizer_kind::strip: strip(step, text, out, edges); break;
        case normalizer_kind::prepend:
            if (edges.first && !text.empty()) put_content(step, text[0].source, out);
            out.append(text.data(), text.size());
            break;
    }
    return true;
}

bool step_normalizer::run(sourced_text& text, sourced_text& spare, segment_edges edges) const {
    bool aligned = true;
    for (const normalizer_step& step : steps_) {
        aligned &= apply(step, text, spare, edges);
        text.swap(spare);
    }
    return aligned;
}

status normalize_by_steps(const text_view& text, const step_normalizer& normalizer,
                         std::vector<uint32_t>& out) {
    sourced_text chars, spare;
    status result;
    switch (text.width) {
        case char_width::ascii:
        case char_width::one: result = copy_text<uint8_t>(text, chars); break;
        case char_width::two: result = copy_text<uint16_t>(text, chars); break;
        case char_width::four: result = copy_text<uint32_t>(text, chars); break;
    }
    if (!result.ok()) return result;
    normalizer.run(chars, spare, {true, true});
    for (int64_t i = 0; i < chars.size(); ++i) out.push_back(chars[i].code);
    return {};
}

}  // namespace encoder_engine
