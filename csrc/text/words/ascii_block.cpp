// The portable classifier.
#include "text/words/ascii_block.h"

#include "text/words/bit_gather.h"

namespace encoder_engine {
namespace {

uint64_t gather_bits(const uint8_t* flags, int bit) {
    uint64_t out = 0;
    for (int i = 0; i < 64; i += 8) out |= gather_8_bits(flags + i, bit) << i;
    return out;
}

template <typename Char>
void classify(const Char* text, int count, const char_classes& classes, uint8_t* lowered,
              ascii_masks& masks) {
    uint8_t flags[64] = {};
    for (int i = 0; i < count; ++i) {
        const uint32_t byte = text[i] < 128 ? text[i] : 255;
        flags[i] = classes.flags[byte];
        lowered[i] = classes.lowered[byte];
    }
    masks = {gather_bits(flags, 0), gather_bits(flags, 1), gather_bits(flags, 2),
             gather_bits(flags, 4), gather_bits(flags, 7)};
}

}  // namespace

void classify_portable(const uint8_t* text, int count, const char_classes& classes,
                       uint8_t* lowered, ascii_masks& masks) {
    classify(text, count, classes, lowered, masks);
}
void classify_portable(const uint16_t* text, int count, const char_classes& classes,
                       uint8_t* lowered, ascii_masks& masks) {
    classify(text, count, classes, lowered, masks);
}
void classify_portable(const uint32_t* text, int count, const char_classes& classes,
                       uint8_t* lowered, ascii_masks& masks) {
    classify(text, count, classes, lowered, masks);
}

}  // namespace encoder_engine
