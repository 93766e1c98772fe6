// The masks in plain C++, and the choice among implementations.
#include "text/bpe/byte_masks.h"

#include "common/cpu_features.h"
#include "text/words/bit_gather.h"

namespace encoder_engine {

void read_masks_portable(const uint8_t* bytes, const uint8_t* classes, const uint8_t* ascii,
                         class_masks& masks) {
    uint8_t found[64], forms[64];
    for (int i = 0; i < 64; ++i) {
        const uint8_t byte = bytes[i];
        found[i] = byte < 0x80 ? ascii[byte] : classes[i];
        forms[i] = static_cast<uint8_t>((byte >= 0x80) | (byte >= 0x80 && byte < 0xC0) << 1);
    }
    const auto gather = [](const uint8_t* flags, int bit) {
        uint64_t out = 0;
        for (int i = 0; i < 64; i += 8) out |= gather_8_bits(flags + i, bit) << i;
        return out;
    };
    masks = {gather(found, 0), gather(found, 1), gather(found, 2), gather(found, 3), gather(found, 4),
             gather(found, 5), gather(found, 6), gather(forms, 0), gather(forms, 1)};
}

mask_function choose_mask_function() {
#if defined(__x86_64__)
    switch (chosen_instruction_set()) {
        case instruction_set::amx:
        case instruction_set::avx512_bf16:
        case instruction_set::avx512: return read_masks_avx512;
        case instruction_set::avx_vnni:
        case instruction_set::avx2: return read_masks_avx2;
        default: break;
    }
#endif
    return read_masks_portable;
}

}  // namespace encoder_engine
