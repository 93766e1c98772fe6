// The portable classifier, and the choice among them.
#include "text/ascii_block.h"

#include "common/cpu_features.h"

namespace encoder_engine {

ascii_classes::ascii_classes(const char_table& table) {
    for (uint32_t code = 0; code < 256; ++code) lowered[code] = static_cast<uint8_t>(code);
    for (uint32_t code = 0; code < 128; ++code) {
        const char_action action = table[code];
        if (action.starts_added()) continue;
        switch (action.kind()) {
            case char_kind::identity: flags[code] = kLetter; break;
            case char_kind::mapped:
                if (action.payload() == code + 0x20 && code + 0x20 < 128) {
                    flags[code] = kLetter | kUpper;
                    lowered[code] = static_cast<uint8_t>(code + 0x20);
                }
                break;
            case char_kind::isolated: flags[code] = kSingle; break;
            case char_kind::space: flags[code] = kSpace; break;
            default: break;
        }
        for (int bit = 0; bit < 4; ++bit) {
            if (flags[code] >> bit & 1) {
                nibbles[bit][code & 15] |= static_cast<uint8_t>(1 << (code >> 4));
            }
        }
    }
}

void classify_portable(const uint8_t* text, const ascii_classes& classes, ascii_block& block) {
    uint64_t letters = 0, singles = 0, spaces = 0;
    for (int i = 0; i < 64; ++i) {
        const uint64_t flags = classes.flags[text[i]];
        block.lowered[i] = classes.lowered[text[i]];
        letters |= (flags & 1) << i;
        singles |= (flags >> 1 & 1) << i;
        spaces |= (flags >> 2 & 1) << i;
    }
    block.letters = letters;
    block.singles = singles;
    block.spaces = spaces;
}

classify_function choose_classify() {
#if defined(__x86_64__)
    switch (chosen_instruction_set()) {
        case instruction_set::avx512: return classify_avx512;
        case instruction_set::avx2: return classify_avx2;
        case instruction_set::portable: break;
    }
#endif
    return classify_portable;
}

}  // namespace encoder_engine
