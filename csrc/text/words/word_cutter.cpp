// The word cutter in plain C++, for processors with and without instructions that count bits.
#include "text/words/word_cutter.h"

#include <algorithm>

#include "common/cpu_features.h"

namespace encoder_engine {
namespace {

// Inlined into functions for several instruction sets.
#define EE_INLINE inline __attribute__((always_inline))

// Writes base + i for each bit i. Sixteen at a time whether there are as many or not: a loop of as
// many rounds as there are bits would be mispredicted at its end (Langdale and Lemire, "Parsing
// Gigabytes of JSON per Second", 2019). Up to 15 more than the bits are written.
EE_INLINE uint16_t* write_places(uint64_t bits, int base, uint16_t* out) {
    const int count = __builtin_popcountll(bits);
    for (int done = 0; done < count; done += 16) {
        for (int i = 0; i < 16; ++i) {
            out[done + i] = static_cast<uint16_t>(base + __builtin_ctzll(bits | 1ull << 63));
            bits &= bits - 1;
        }
    }
    return out + count;
}

template <typename Unit>
EE_INLINE void cut(unit_masks& masks, int count, const Unit* units, word_chunk& chunk) {
    const int num_masks = clear_behind(masks, count);
    uint16_t* start = chunk.starts;
    uint16_t* end = chunk.sizes;
    for (int i = 0; i < num_masks; ++i) {
        const word_edges edges(masks, i, i > 0 ? masks.letters[i - 1] >> 63 : 0);
        start = write_places(edges.starts, 64 * i, start);
        end = write_places(edges.ends, 64 * i, end);
    }
    chunk.num_words = static_cast<int>(start - chunk.starts);
    for (int i = 0; i < chunk.num_words; ++i) {
        const int first = chunk.starts[i];
        const int size = chunk.sizes[i] + 1 - first;
        chunk.sizes[i] = static_cast<uint16_t>(size);
        const int bytes = std::min(size * static_cast<int>(sizeof(Unit)), word_key::kMaxSize);
        chunk.keys[i] = word_key::read(reinterpret_cast<const uint8_t*>(units + first), bytes);
    }
}

uint16_t* write_places_portable(const uint64_t* bits, int num_words, uint16_t* out) {
    for (int i = 0; i < num_words; ++i) out = write_places(bits[i], 64 * i, out);
    return out;
}

template <typename Unit>
void cut_portable(unit_masks& masks, int count, const Unit* units, word_chunk& chunk) {
    cut(masks, count, units, chunk);
}

#if defined(__x86_64__)
#define EE_BMI __attribute__((target("bmi,bmi2,lzcnt,popcnt")))

EE_BMI uint16_t* write_places_bmi(const uint64_t* bits, int num_words, uint16_t* out) {
    for (int i = 0; i < num_words; ++i) out = write_places(bits[i], 64 * i, out);
    return out;
}

template <typename Unit>
EE_BMI void cut_bmi(unit_masks& masks, int count, const Unit* units, word_chunk& chunk) {
    cut(masks, count, units, chunk);
}
#endif

}  // namespace

scan_functions choose_scan_functions() {
#if defined(__x86_64__)
    switch (chosen_instruction_set()) {
        case instruction_set::amx:
        case instruction_set::avx512_bf16:
        case instruction_set::avx512:
            return {classify_avx512, classify_avx512, classify_avx512, cut_bytes_avx512,
                    cut_units_avx512, write_places_avx512};
        case instruction_set::avx_vnni:
        case instruction_set::avx2:
            return {classify_avx2, classify_avx2, classify_avx2, cut_bmi, cut_bmi,
                    write_places_bmi};
        default: break;
    }
#endif
    return {classify_portable, classify_portable, classify_portable, cut_portable, cut_portable,
            write_places_portable};
}

}  // namespace encoder_engine
