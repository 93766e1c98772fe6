// The tables of rules.
#include "fuzz/twins/drawn_rules.h"

namespace encoder_engine {
namespace {

// Case, width, ligatures and composition, as published files have them.
charsmap_rules common_rules() {
    charsmap_rules out{
        {"\t", " "}, {"\n", " "}, {"\u00A0", " "}, {"\u2003", " "}, {"\u3000", " "},
        {"\u200B", " "}, {"\u200E", " "}, {"\u2028", " "}, {"\uFEFF", " "}, {"\u0001", ""},
        {"\u007F", ""}, {"\u0085", ""}, {"\u00C9", "\u00E9"}, {"e\u0301", "\u00E9"},
        {"E\u0301", "\u00E9"}, {"o\u0308", "\u00F6"}, {"\u304B\u3099", "\u304C"},
        {"\uFF76", "\u30AB"}, {"\uFF76\uFF9E", "\u30AC"}, {"\uFF9E", "\u3099"}, {"\uFB01", "fi"},
        {"\u00BD", "1\u20442"}, {"\u2026", "..."}, {"\u00A8", " \u0308"}, {"\u0E33", "\u0E4D\u0E32"},
        {"\uFDFA", "one two  three"}, {"\u1100\u1161", "\uAC00"}, {"\u1100\u1161\u11A8", "\uAC01"},
        {"\U0001F100", "0."}, {"\u212B", "\u00E5"}, {"\u03C2", "\u03C3"}, {"\U0001D400", "a"},
        {"\u2581", " "}};
    for (char c = 'A'; c <= 'Z'; ++c) out[std::string(1, c)] = static_cast<char>(c + 32);
    return out;
}

// Keys that are others' beginnings, that vanish, grow, and become white space or marks.
charsmap_rules odd_rules() {
    return {{"a", "\u00E1"}, {"ab", "x"}, {"abc", ""}, {" \u0308", "_"}, {"\u0301", ""},
            {"b\u0323", ""}, {"c", ""}, {"\uFB01", "fi"}, {"e", "e e"}, {"\uFDFA", "one two three"},
            {"\u2581", " "}, {"q", "\u2581"}, {"\u4E2D", " "}, {"\u0E33", "\u0E4D\u0E32"},
            {"\u200D", " "}, {"\u200C", ""}, {"\u200B", "  "}, {"\uFE0F", ""}, {"\U0001F3FB", ""},
            {"\U0001F3FD", " "}, {"\u1161", "a"}, {"\u11A8", ""}, {"\u094D", "x"}, {"\r\n", "\n"},
            {"\u0600", "p"}, {"\U0001F1E6", "A"}, {"\u0903", " b"}, {"\uAC00", "\u1100\u1161"},
            {"\U0001F600", "lower"}, {"low er", "\u2581low"}, {"d ", " D"}, {".", " . "}, {",", ""},
            {"\u00DF", "s\u2581s"}, {"\u0130", "i\u0307"}, {"\u3042", "\U0001F600"}};
}

// Clusters of fewer than six bytes, and what is tied to the character before it.
charsmap_rules binding_rules() {
    return {{" \u0301", "_"}, {"\u2581\u0301", "m"}, {"n\u200D", "nj"}, {"n\u200C", " "},
            {"x\uFE0F", ""}, {"9\uFE0F", "nine"}, {"\u00A9\uFE0F", "(c)"}, {"\u00E9\u0323", "ee"},
            {"a\u0301b", "never"}, {"a\u0301", "\u00E1"}, {"a\u0323", ""}, {"l\u0301", "  "},
            {"\u0301\u0323", "y"}, {"\u0301", "\u0301\u0301"}, {"\u200D\u00A9", "z"}, {"\u200B", ""},
            {"\u0660\u0301", " \u0660"}, {"\u4E2D", "\u4E2D\u4E2D"}, {"w\u093F", "wi"}, {"\u0915", "k"},
            {"\r\n", " "}, {"\r", "r"}, {"\u3042\u3099", "never"}, {"\U0001F1E7", "b"}, {"e ", "e"},
            {"\u0600a", "q"}, {"\u0600", ""}, {"or ", "\u00F6 "}, {"  ", " "}, {"\u00AD", ""},
            {"\U0001F600", " "}, {"ing", "\U0001F600ing"}, {"\u1100\u1161", "\uAC00"}};
}

}  // namespace

const std::vector<rule_set>& rule_sets() {
    static const std::vector<rule_set> sets = [] {
        std::vector<rule_set> out;
        for (const charsmap_rules& table : {common_rules(), odd_rules(), binding_rules()}) {
            const std::string bytes = compile_rules(table);
            out.push_back({table, bytes, std::make_shared<const charsmap>(bytes)});
        }
        return out;
    }();
    return sets;
}

}  // namespace encoder_engine
