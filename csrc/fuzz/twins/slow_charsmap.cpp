// Looks back over the whole text at every place where a cluster might end.
#include "fuzz/twins/slow_charsmap.h"

#include "fuzz/twins/slow_token.h"
#include "text/unicode/grapheme.h"

namespace encoder_engine {
namespace {

using kind = grapheme_class;
using key_place = std::pair<std::string, uint32_t>;

// Gives a node a block of 256 units for its children, which lie at its base xor their byte.
void place_node(std::vector<uint32_t>& units, size_t node, const std::vector<key_place>& keys) {
    constexpr uint32_t is_value = 1u << 31, has_value = 1u << 8, far_offset = 1u << 9;
    const size_t base = units.size() | (node & 0xFF);
    units.resize(units.size() + 256, is_value);
    units[node] |= static_cast<uint32_t>((node ^ base) >> 8) << 10 | far_offset;
    std::map<uint8_t, std::vector<key_place>> groups;
    for (const auto& [key, place] : keys) {
        if (key.empty()) {
            units[node] |= has_value;
            units[base] = is_value | place;
        } else {
            groups[static_cast<uint8_t>(key[0])].emplace_back(key.substr(1), place);
        }
    }
    for (const auto& [label, group] : groups) {
        units[base ^ label] = label;
        place_node(units, base ^ label, group);
    }
}

void append_le32(std::string& out, uint32_t value) {
    for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

bool is_control(kind k) {
    return k == kind::control || k == kind::carriage_return || k == kind::line_feed;
}
bool is_extend(kind k) { return k == kind::extend || k == kind::linker || k == kind::non_joiner; }

// Rule 9c: consonant, then linkers and extenders of which one at least links.
bool links(const std::vector<kind>& kinds, size_t at) {
    bool linked = false;
    while (at > 0) {
        const kind before = kinds[--at];
        if (before == kind::consonant) return linked;
        if (before != kind::linker && before != kind::extend && before != kind::joiner) return false;
        linked |= before == kind::linker;
    }
    return false;
}

// Rule 11: a pictograph and extenders before the joiner at a place.
bool joins_pictograph(const std::vector<kind>& kinds, size_t joiner) {
    while (joiner > 0 && is_extend(kinds[joiner - 1])) --joiner;
    return joiner > 0 && kinds[joiner - 1] == kind::pictograph;
}

// The rules of Unicode Standard Annex 29 in their order: whether a cluster ends before a character.
bool breaks(const std::vector<kind>& kinds, size_t at) {
    const kind before = kinds[at - 1], next = kinds[at];
    if (before == kind::carriage_return && next == kind::line_feed) return false;
    if (is_control(before) || is_control(next)) return true;
    const bool syllable = next == kind::hangul_lv || next == kind::hangul_lvt;
    if (before == kind::hangul_l && (syllable || next == kind::hangul_l || next == kind::hangul_v)) {
        return false;
    }
    if ((before == kind::hangul_lv || before == kind::hangul_v) &&
        (next == kind::hangul_v || next == kind::hangul_t)) {
        return false;
    }
    if ((before == kind::hangul_lvt || before == kind::hangul_t) && next == kind::hangul_t) return false;
    if (is_extend(next) || next == kind::joiner || next == kind::spacing) return false;
    if (before == kind::prepend) return false;
    if (next == kind::consonant && links(kinds, at)) return false;
    if (before == kind::joiner && next == kind::pictograph && joins_pictograph(kinds, at - 1)) {
        return false;
    }
    if (next != kind::regional) return true;
    size_t flags = 0;
    while (flags < at && kinds[at - 1 - flags] == kind::regional) ++flags;
    return flags % 2 == 0;
}

struct changed {
    uint32_t code;
    int64_t change;  // above 0: extra; else it takes the place of an old one and of so many behind it
};

// The replacement of the shortest key, if there is one.
bool replace(const charsmap_rules& rules, const std::string& text, int64_t count,
             std::vector<changed>& out) {
    for (size_t size = 1; size <= text.size(); ++size) {
        const auto rule = rules.find(text.substr(0, size));
        if (rule == rules.end()) continue;
        const std::vector<uint32_t> fresh = from_utf8(rule->second);
        for (const uint32_t code : fresh) out.push_back({code, 0});
        int64_t more = static_cast<int64_t>(fresh.size()) - count;
        if (more < 0 && !out.empty()) out.back().change += more;
        for (size_t i = out.size(); more > 0; --more) out[--i].change = 1;
        return true;
    }
    return false;
}

void replace_cluster(const charsmap_rules& rules, const sourced_char* chars, int64_t count,
                     std::vector<changed>& out) {
    std::string whole;
    for (int64_t i = 0; i < count; ++i) whole += to_utf8(chars[i].code);
    if (whole.size() < 6 && replace(rules, whole, count, out)) return;
    for (int64_t i = 0; i < count; ++i) {
        if (!replace(rules, to_utf8(chars[i].code), 1, out)) out.push_back({chars[i].code, 0});
    }
}

}  // namespace

std::string compile_rules(const charsmap_rules& rules) {
    std::vector<key_place> keys;
    std::string replacements;
    for (const auto& [key, replacement] : rules) {
        keys.emplace_back(key, static_cast<uint32_t>(replacements.size()));
        replacements += replacement;
        replacements.push_back('\0');
    }
    std::vector<uint32_t> units(256);
    place_node(units, 0, keys);
    std::string out;
    append_le32(out, static_cast<uint32_t>(4 * units.size()));
    for (const uint32_t unit : units) append_le32(out, unit);
    return out + replacements;
}

void apply_rules(const charsmap_rules& rules, const sourced_text& text, sourced_text& out) {
    std::vector<kind> kinds;
    for (int64_t i = 0; i < text.size(); ++i) kinds.push_back(grapheme_class_of(text[i].code));
    std::vector<changed> fresh;
    int64_t start = 0;
    for (int64_t stop = 1; stop <= text.size(); ++stop) {
        if (stop < text.size() && !breaks(kinds, static_cast<size_t>(stop))) continue;
        replace_cluster(rules, text.data() + start, stop - start, fresh);
        start = stop;
    }
    int64_t taken = 0;
    for (const changed& c : fresh) {
        const int64_t place = c.change > 0 && taken > 0 ? taken - 1 : taken;
        out.append({c.code, text[place].source});
        if (c.change <= 0) taken += 1 - c.change;
    }
}

}  // namespace encoder_engine
