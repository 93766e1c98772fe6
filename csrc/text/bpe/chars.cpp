// Fills the table from the Unicode tables and the normalizer's.
#include "text/bpe/chars.h"

#include <algorithm>
#include <cstring>

#include "text/bpe/model/model.h"
#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

uint8_t class_of(uint32_t code) {
    const uint32_t category = unicode_category(code);
    if (category == kUnicodeLetter) return kLetterClass;
    if (category == kUnicodeNumber) return kNumberClass;
    if (is_strip_space(code)) {
        const uint8_t blank = code == ' ' ? kBlankClass : 0;
        const uint8_t newline = code == '\n' || code == '\r' ? kNewlineClass : 0;
        return kSpaceClass | blank | newline;
    }
    return code == '\'' ? kQuoteClass : code == 0 ? kNulClass : 0;
}

// The classes of all characters, in blocks of 256; equal blocks are shared.
struct class_table {
    std::vector<uint16_t> stage;
    std::vector<uint8_t> classes;

    class_table() : stage(kUnicodeEnd >> 8) {
        for (uint32_t block = 0; block < stage.size(); ++block) {
            uint8_t fresh[256];
            for (uint32_t i = 0; i < 256; ++i) fresh[i] = class_of(block << 8 | i);
            size_t place = 0;
            while (place < classes.size() && !std::equal(fresh, fresh + 256, classes.data() + place)) {
                place += 256;
            }
            if (place == classes.size()) classes.insert(classes.end(), fresh, fresh + 256);
            stage[block] = static_cast<uint16_t>(place / 256);
        }
    }
};

// What a single ASCII character becomes, or -1 if that is not one ASCII byte.
int ascii_form(uint32_t code, const step_char_table& table, bool marks) {
    const step_char c = table[code];
    if (!c.solid()) return -1;
    int64_t size = 1;
    const uint32_t* form = c.identity() ? &code : table.form(c, size);
    if (size != 1) return -1;
    if (marks && form[0] == bpe_model::kMark) return ' ';
    return form[0] < 128 && !(marks && form[0] == ' ') ? static_cast<int>(form[0]) : -1;
}

}  // namespace

bpe_chars::bpe_chars(const step_char_table& table, bool marks, bool digits,
                     const added_token_set& raw, const added_token_set& normalized)
    : blocks_(raw) {
    static const class_table kClassTable;
    stage_ = kClassTable.stage;
    entries_ = kClassTable.classes;
    std::copy_n(entries_.begin(), 128, ascii_);
    // Blocks with unusual characters become their own.
    for (uint32_t block = 0; block < stage_.size(); ++block) {
        const bool surrogates = block >= 0xD8 && block < 0xE0;
        if (table.is_plain(block) && !surrogates && !(marks && block == bpe_model::kMark >> 8)) continue;
        uint8_t* const own = own_block(block);
        for (uint32_t i = 0; i < 256; ++i) {
            const uint32_t code = block << 8 | i;
            const step_char c = table[code];
            const bool usual = c.solid() && c.identity() && !c.starts_added() && !c.surrogate();
            if (!usual || (marks && code == bpe_model::kMark)) own[i] |= kUnusual;
        }
    }
    for (int i = 0; digits && i < unicode_category_runs_count; ++i) {
        if ((unicode_category_runs[i] & 0xFF) != kUnicodeLaterNumber) continue;
        for (uint32_t code = unicode_category_runs[i] >> 8; code < unicode_category_runs[i + 1] >> 8; ++code) {
            own_block(code >> 8)[code & 0xFF] |= kNumberClass;
        }
    }
    for (uint32_t code = 0; code < 128; ++code) {
        const int form = ascii_form(code, table, marks);
        if (form == static_cast<int>(code)) {
            blocks_.wide[code] = char_classes::one_unit(code, char_classes::kLetter);
        } else if (form == static_cast<int>(code + 0x20) && code >= 'A' && code <= 'Z') {
            blocks_.wide[code] = char_classes::one_unit(code + 0x20, char_classes::kLetter);
        }
    }
    for (const added_token_set* added : {&raw, &normalized}) note_starts(*added);
    blocks_.finish();
    std::vector<uint32_t>().swap(blocks_.wide);  // of which only the first 128 are needed
}

// Gives 256 characters entries that no others share.
uint8_t* bpe_chars::own_block(uint32_t block) {
    const size_t from = static_cast<size_t>(stage_[block]) << 8, to = entries_.size();
    entries_.resize(to + 256);
    std::memcpy(entries_.data() + to, entries_.data() + from, 256);
    stage_[block] = static_cast<uint16_t>(to / 256);
    return entries_.data() + to;
}

void bpe_chars::note_starts(const added_token_set& added) {
    for (const added_token& token : added.tokens()) {
        if (token.content.empty()) continue;  // nothing is left of it by the normalizer
        looks_back_ = looks_back_ || token.lstrip || token.single_word;
        const uint32_t first = token.content[0];
        if (first >= 128) {
            own_block(first >> 8)[first & 0xFF] |= kUnusual;
            continue;
        }
        blocks_.mark_start(first);
        if (first >= 'a' && first <= 'z') blocks_.mark_start(first - 0x20);
        const bool pair = token.content.size() > 1 && token.content[1] < 128;
        for (uint32_t second = 0; second < 128; ++second) {
            if (!pair || token.content[1] == second) starts_.set(128 * first + second);
        }
    }
}

}  // namespace encoder_engine
