// The portable classifier, and the choice among them.
#include "text/ascii_block.h"

#include "common/cpu_features.h"

namespace encoder_engine {

void classify_portable(const uint8_t* text, const char_classes& classes, uint8_t* lowered,
                       ascii_masks& masks) {
    masks = {};
    for (int i = 0; i < 64; ++i) {
        const uint64_t flags = classes.flags[text[i]];
        lowered[i] = classes.lowered[text[i]];
        masks.letters |= (flags & 1) << i;
        masks.singles |= (flags >> 1 & 1) << i;
        masks.spaces |= (flags >> 2 & 1) << i;
        masks.starts |= (flags >> 4 & 1) << i;
    }
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
