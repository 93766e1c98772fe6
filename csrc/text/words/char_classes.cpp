// Derives the word scanner's tables from the character table.
#include "text/words/char_classes.h"

#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

// Compatibility ideographs, the only ones that decompose.
bool may_decompose(uint32_t code) { return code >= 0xF900 && code < 0xFB00; }

}  // namespace

char_classes::char_classes(const added_token_set& added)
    : wide(0x10000, kBlocked), astral_blocks(0x1000), astral_bits(8) {
    for (const added_token& token : added.tokens()) {
        if (token.content.size() < 2) {
            any_second = true;
        } else {
            seconds[token.content[1] & 0xFF] = true;
        }
    }
}

char_classes::char_classes(const char_table& table, const added_token_set& added)
    : char_classes(added) {
    for (uint32_t code = 0; code < 0x10000; ++code) {
        set_wide(code, table);
        if (table[code].starts_added()) mark_start(code);
    }
    set_astral(table);
    finish();
}

uint32_t char_classes::letters(const uint32_t* codes, int64_t count, uint32_t ties) {
    if (count < 1 || count > kMaxNormal) return kBlocked;
    expansion units;
    units.ties = ties;
    units.count = static_cast<uint8_t>(count);
    for (int64_t i = 0; i < count; ++i) {
        if (codes[i] >= 0x10000) return kBlocked;
        units.units[i] = static_cast<uint16_t>(codes[i]);
    }
    expansions.push_back(units);
    return kSpecial | static_cast<uint32_t>(expansions.size() - 1);
}

uint32_t char_classes::tied_space(uint32_t ties) {
    const uint32_t space = ' ';
    const uint32_t entry = letters(&space, 1, ties);
    expansions.back().flag = kSpace;
    return entry;
}

void char_classes::mark_start(uint32_t code) {
    if (code >= 0x10000) return;
    // Of what may start an added token, only plain characters are looked at closely.
    uint32_t& entry = wide[code];
    entry = (entry & kSpecial) == 0 ? entry | static_cast<uint32_t>(kStart) << kFlagsShift : kBlocked;
}

void char_classes::set_wide(uint32_t code, const char_table& table) {
    const char_action action = table[code];
    uint32_t& entry = wide[code];
    switch (action.kind()) {
        // A zero at the end of a key stands for no character.
        case char_kind::identity: entry = code == 0 ? kBlocked : one_unit(code, kLetter); break;
        case char_kind::space: entry = one_unit(' ', kSpace); break;
        case char_kind::dropped: entry = 0; break;
        case char_kind::hangul: entry = kHangul; break;
        case char_kind::mapped:
            entry = action.payload() < 0x10000 ? one_unit(action.payload(), kLetter) : kBlocked;
            break;
        case char_kind::cjk:
            if (!may_decompose(code)) {
                entry = one_unit(code, kSingle);
                break;
            }
            [[fallthrough]];
        case char_kind::isolated: {
            // The table knows the token only.
            const normal_form form = normalize_code_point(code, table.options());
            entry = form.chars[0].code < 0x10000 ? one_unit(form.chars[0].code, kSingle) : kBlocked;
            break;
        }
        case char_kind::expanded: {
            const normal_form& form = table.expansion(action.payload());
            uint32_t codes[kMaxNormal];
            bool plain = !form.cjk;
            for (int i = 0; i < form.count; ++i) {
                codes[i] = form.chars[i].code;
                plain = plain && form.chars[i].kind == char_kind::identity;
            }
            entry = plain ? letters(codes, form.count) : kBlocked;
            break;
        }
        case char_kind::nonstarter:
        case char_kind::surrogate: entry = kBlocked; break;
    }
}

void char_classes::set_astral(const char_table& table) {
    for (uint32_t block = 0; block < 0x1000; ++block) {
        const char_action* actions = table.block(0x100 + block);
        if (block > 0 && actions == table.block(0xFF + block)) {
            astral_blocks[block] = astral_blocks[block - 1];
            continue;
        }
        uint64_t bits[4] = {};
        for (int i = 0; i < 256; ++i) {
            const bool plain = actions[i].kind() == char_kind::identity && !actions[i].starts_added();
            bits[i >> 6] |= static_cast<uint64_t>(plain) << (i & 63);
        }
        set_astral(block, bits);
    }
}

void char_classes::set_astral(uint32_t block, const uint64_t (&bits)[4]) {
    const uint64_t all = bits[0] & bits[1] & bits[2] & bits[3];
    const uint64_t any = bits[0] | bits[1] | bits[2] | bits[3];
    const size_t place = all == ~0ull ? 1 : any == 0 ? 0 : astral_bits.size() / 4;
    astral_blocks[block] = static_cast<uint16_t>(place);
    if (place > 1) astral_bits.insert(astral_bits.end(), bits, bits + 4);
}

void char_classes::finish() {
    for (uint32_t code = 0; code < 256; ++code) lowered[code] = static_cast<uint8_t>(code);
    flags[255] = kBeyond;
    for (uint32_t code = 0; code < 128; ++code) {
        const uint32_t entry = wide[code];
        const uint32_t unit = entry & 0xFFFF;
        if ((entry & kSpecial) != 0 || (entry & kOne) == 0) continue;
        const bool upper = unit == code + 0x20;
        if (!upper && unit != code && (entry >> kFlagsShift & kSpace) == 0) continue;
        flags[code] = static_cast<uint8_t>(entry >> kFlagsShift | (upper ? kUpper : 0));
        if (upper) lowered[code] = static_cast<uint8_t>(unit);
        for (int bit = 0; bit < 5; ++bit) {
            if (flags[code] >> bit & 1) {
                nibbles[bit][code & 15] |= static_cast<uint8_t>(1 << (code >> 4));
            }
        }
    }
}

}  // namespace encoder_engine
