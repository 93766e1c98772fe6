// The scanner with a sink that only writes characters down.
#include "text/wordpiece/normalize_text.h"

#include "text/wordpiece/scanner.h"

namespace encoder_engine {
namespace {

struct code_sink {
    std::vector<uint32_t>& out;
    bool full() const { return false; }
    void letter(uint32_t code, int64_t) { out.push_back(code); }
    void space(uint32_t code, int64_t) { out.push_back(code); }
    void isolated(uint32_t code, int64_t) { out.push_back(code); }
    void cjk(uint32_t code, int64_t) { out.insert(out.end(), {' ', code, ' '}); }
    void item(const normal_char& c, int64_t) { out.push_back(c.code); }
    uint32_t payload(uint32_t code) const { return code; }
    void added(const added_match&) {}
    void finish() {}
};

template <typename Char>
status normalize_chars(const text_view& text, const char_table& table, std::vector<uint32_t>& out) {
    const added_token_set none({});
    code_sink sink{out};
    return scanner<Char, code_sink>(table, none, static_cast<const Char*>(text.data), text.length,
                                    sink)
        .run();
}

}  // namespace

std::unique_ptr<char_table> make_text_table(const normalizer_options& options) {
    std::vector<uint32_t> every_cjk;
    for (const code_range& range : kCjkRanges) {
        for (uint32_t code = range.first; code <= range.last; ++code) every_cjk.push_back(code);
    }
    return std::make_unique<char_table>(
        options, [](uint32_t code) { return code; }, every_cjk);
}

status normalize_text(const text_view& text, const char_table& table, std::vector<uint32_t>& out) {
    switch (text.width) {
        case char_width::ascii:
        case char_width::one: return normalize_chars<uint8_t>(text, table, out);
        case char_width::two: return normalize_chars<uint16_t>(text, table, out);
        case char_width::four: return normalize_chars<uint32_t>(text, table, out);
    }
    return {};
}

}  // namespace encoder_engine
