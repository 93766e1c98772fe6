// Tries every step on each character that some step may know, and looks what it depends on.
#include "text/normalizer/chars.h"

#include <algorithm>

#include "text/added_tokens.h"
#include "text/unicode/grapheme.h"
#include "text/text_view.h"
#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

constexpr uint32_t kSurrogateFirst = 0xD800, kSurrogateEnd = 0xE000;
constexpr uint32_t kJamoV = 0x1161, kJamoVEnd = 0x1176, kJamoT = 0x11A8, kJamoTEnd = 0x11C3;

bool is_form(normalizer_kind kind) {
    return kind >= normalizer_kind::nfc && kind <= normalizer_kind::nfkd;
}

bool composes_behind(uint32_t code) {
    if ((code >= kJamoV && code < kJamoVEnd) || (code >= kJamoT && code < kJamoTEnd)) return true;
    static const std::vector<uint32_t> seconds = [] {
        std::vector<uint32_t> out;
        for (int i = 0; i < unicode_compositions_count; ++i) {
            out.push_back(unicode_compositions[i].second);
        }
        std::sort(out.begin(), out.end());
        return out;
    }();
    return std::binary_search(seconds.begin(), seconds.end(), code);
}

bool in_pattern(const normalizer_step& step, uint32_t code) {
    if (std::find(step.pattern.begin(), step.pattern.end(), code) != step.pattern.end()) return true;
    if (step.kind != normalizer_kind::replace_runs) return false;
    return step.white_space ? is_strip_space(code) : code == ' ';
}

// What more than the character's own text a step could see.
struct dependence {
    bool before = false;  // what is before it, as far as this alone
    bool both = false;
};

dependence of_graphemes(const sourced_text& text) {
    dependence out;
    for (int64_t i = 0; i < text.size(); ++i) {
        const grapheme_class kind = grapheme_class_of(text[i].code);
        if (is_separate(kind)) continue;
        // What joins only to the left ends the matter if it is the last.
        const bool left = kind == grapheme_class::extend || kind == grapheme_class::spacing ||
                          kind == grapheme_class::non_joiner;
        (left ? out.before : out.both) = true;
    }
    return out;
}

// What rules on clusters make of a character that reaches them as `text`: see step_char.
uint32_t binding(const charsmap& rules, uint32_t code, const sourced_text& text) {
    constexpr uint32_t both = step_char::kBindsWide | step_char::kBindsNarrow;
    if (text.size() != 1 || text[0].code != code) return both;
    uint8_t bytes[4];
    const int size = write_utf8(code, bytes);
    if (rules.shortest(bytes, size).size == 0 && !rules.continues(bytes, size)) return 0;
    return code < kWideFirst ? both : step_char::kBindsNarrow;
}

// Whether nothing may be left of a cluster that one of the characters begins.
bool cluster_vanishes(const charsmap& rules, const sourced_text& text) {
    for (int64_t i = 0; i < text.size(); ++i) {
        uint8_t bytes[4];
        if (rules.vanishes_behind(bytes, write_utf8(text[i].code, bytes))) return true;
    }
    return false;
}

// Whether a character can belong to the cluster before it, but with no other to what is behind it,
// unless that belongs to the cluster as well.
bool only_joins(uint32_t code) {
    const grapheme_class kind = grapheme_class_of(code);
    return kind == grapheme_class::extend || kind == grapheme_class::spacing ||
           kind == grapheme_class::non_joiner || kind == grapheme_class::linker ||
           kind == grapheme_class::joiner;
}

dependence find_dependence(const normalizer_step& step, const sourced_text& text) {
    dependence out;
    if (text.empty()) return out;
    switch (step.kind) {
        case normalizer_kind::charsmap: return of_graphemes(text);
        case normalizer_kind::replace:
            // One character is replaced wherever it stands.
            if (step.pattern.size() == 1) return out;
            [[fallthrough]];
        case normalizer_kind::replace_runs:
            for (int64_t i = 0; i < text.size(); ++i) out.both |= in_pattern(step, text[i].code);
            return out;
        case normalizer_kind::nfc:
        case normalizer_kind::nfd:
        case normalizer_kind::nfkc:
        case normalizer_kind::nfkd: {
            const bool composes =
                step.kind == normalizer_kind::nfc || step.kind == normalizer_kind::nfkc;
            uint32_t parts[kMaxCompatibility];
            unicode_decompose_compatibility(text[0].code, parts);
            out.before = unicode_combining_class(parts[0]) != 0 ||
                         (composes && (composes_behind(text[0].code) || composes_behind(parts[0])));
            return out;
        }
        default: return out;
    }
}

// Whether a step treats a character by what stands around it.
bool looks_around(const normalizer_step& step) {
    return step.kind == normalizer_kind::charsmap || step.kind == normalizer_kind::replace ||
           step.kind == normalizer_kind::replace_runs || is_form(step.kind);
}

bool all_space(const sourced_text& text) {
    for (int64_t i = 0; i < text.size(); ++i) {
        if (!is_strip_space(text[i].code)) return false;
    }
    return true;
}

// The code points on which some Unicode table has something to say.
void add_listed(std::vector<uint32_t>& codes, const step_normalizer& normalizer) {
    const auto add_runs = [&](const uint32_t* runs, int count, uint32_t mask) {
        for (int i = 0; i < count; ++i) {
            if ((runs[i] & mask) == 0) continue;
            const uint32_t end = i + 1 < count ? runs[i + 1] >> 8 : kUnicodeEnd;
            for (uint32_t code = runs[i] >> 8; code < end; ++code) codes.push_back(code);
        }
    };
    add_runs(unicode_property_runs, unicode_property_runs_count,
             kUnicodeWhitespace | kUnicodeAnyMark);
    bool charsmap = false, forms = false, lower = false;
    for (const normalizer_step& step : normalizer.steps()) {
        codes.insert(codes.end(), step.pattern.begin(), step.pattern.end());
        charsmap |= step.kind == normalizer_kind::charsmap;
        forms |= is_form(step.kind);
        lower |= step.kind == normalizer_kind::lowercase;
        if (step.kind == normalizer_kind::charsmap) {
            step.rules->for_each_next(nullptr, 0, [&](uint32_t code) { codes.push_back(code); });
        }
    }
    if (charsmap) add_runs(unicode_grapheme_runs, unicode_grapheme_runs_count, 0xFF);
    if (lower) {
        codes.push_back(0x130);
        for (int i = 0; i < unicode_lowercase_runs_count; ++i) {
            const lowercase_run& run = unicode_lowercase_runs[i];
            for (uint32_t code = run.first; code <= run.last; code += run.step) codes.push_back(code);
        }
    }
    if (!forms) return;
    add_runs(unicode_combining_runs, unicode_combining_runs_count, 0xFF);
    for (uint32_t code = kHangulFirst; code < kHangulEnd; ++code) codes.push_back(code);
    for (int i = 0; i < unicode_singletons_count; ++i) {
        codes.push_back(static_cast<uint32_t>(unicode_singletons[i] >> 24));
    }
    const auto add_heads = [&](const uint32_t* table, int count) {
        for (int i = 0; i < count; i += 1 + static_cast<int>(table[i] >> 24)) {
            codes.push_back(table[i] & 0xFFFFFF);
        }
    };
    add_heads(unicode_decompositions, unicode_decompositions_count);
    add_heads(unicode_compatibility, unicode_compatibility_count);
    for (int i = 0; i < unicode_compositions_count; ++i) {
        codes.push_back(unicode_compositions[i].second);
    }
    for (uint32_t code = kJamoV; code < kJamoTEnd; ++code) codes.push_back(code);
}

}  // namespace

step_char_table::step_char_table(const step_normalizer& normalizer)
    : stage_(kUnicodeEnd >> 8, 0), chars_(256), forms_{0} {
    std::vector<uint32_t> codes{' '};
    add_listed(codes, normalizer);
    std::sort(codes.begin(), codes.end());
    codes.erase(std::unique(codes.begin(), codes.end()), codes.end());
    sourced_text text, spare;
    for (const uint32_t code : codes) set(code, normalizer, text, spare);
    chars_.resize(chars_.size() + 256, {step_char::kIrregular | step_char::kSurrogate});
    for (uint32_t code = kSurrogateFirst; code < kSurrogateEnd; code += 256) {
        stage_[code >> 8] = static_cast<uint16_t>(chars_.size() / 256 - 1);
    }
}

void step_char_table::mark_added_starts(const std::vector<uint32_t>& codes) {
    for (const uint32_t code : codes) writable(code).bits |= step_char::kStartsAdded;
}

step_char& step_char_table::writable(uint32_t code) {
    uint16_t& block = stage_[code >> 8];
    if (block == 0) {
        block = static_cast<uint16_t>(chars_.size() / 256);
        chars_.resize(chars_.size() + 256);
    }
    return chars_[static_cast<size_t>(block) << 8 | (code & 0xFF)];
}

void step_char_table::set(uint32_t code, const step_normalizer& normalizer,
                             sourced_text& text, sourced_text& spare) {
    if (code >= kSurrogateFirst && code < kSurrogateEnd) return;
    uint32_t bits = 0;
    bool before = false, both = false, tied = only_joins(code);
    text.clear();
    text.append({code, 0});
    for (const normalizer_step& step : normalizer.steps()) {
        // Of a character that is gone the step sees those around it as neighbours.
        if (text.empty() && looks_around(step)) {
            before = true;
            tied = false;
        }
        if (step.kind == normalizer_kind::strip && all_space(text)) bits |= step_char::kHollow;
        const dependence found = find_dependence(step, text);
        before |= found.before;
        both |= found.both;
        if (step.kind == normalizer_kind::charsmap) {
            if (!text.empty() && grapheme_class_of(text[0].code) == grapheme_class::consonant) {
                bits |= step_char::kGuarded;
            }
            bits |= binding(*step.rules, code, text);
            tied = tied && text.size() == 1 && text[0].code == code;
        } else {
            tied = tied && !found.before && !found.both;
        }
        step_normalizer::apply(step, text, spare, {false, false});
        // What vanishes under rules can move the source of the character before.
        const bool vanishes = step.kind == normalizer_kind::charsmap && spare.empty();
        before |= vanishes || (step.kind == normalizer_kind::charsmap && cluster_vanishes(*step.rules, text));
        tied = tied && !vanishes;
        text.swap(spare);
        if (text.empty()) bits |= step_char::kHollow;
    }
    if (before || both) bits |= step_char::kIrregular;
    if (before && !both) bits |= step_char::kLeansBack;
    if ((before || both) && tied) bits |= step_char::kTied;
    if (text.size() != 1 || text[0].code != code) {
        bits |= static_cast<uint32_t>(forms_.size());
        forms_.push_back(static_cast<uint32_t>(text.size()));
        for (int64_t i = 0; i < text.size(); ++i) forms_.push_back(text[i].code);
    }
    if (bits != 0) writable(code).bits = bits;
}

}  // namespace encoder_engine
