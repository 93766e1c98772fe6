// Bit masks of letters and single characters, then words, then their keys.
#include "text/word_chunk.h"

#include <algorithm>
#include <cstring>

#include "text/bit_gather.h"
#include "text/unicode_tables.h"

namespace encoder_engine {
namespace {

uint64_t first_bits(int count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

// Where the word that ends at `count` begins; `count` itself if no word does.
int last_gap(const unit_masks& masks, int count) {
    for (int word = (count - 1) >> 6; word >= 0; --word) {
        const uint64_t gaps = ~masks.letters[word] & first_bits(count - 64 * word);
        if (gaps != 0) return 64 * word + 64 - __builtin_clzll(gaps);
    }
    return 0;
}

// Cuts the units into words; returns how many units are done. `open` says that the last word may
// go on.
template <typename Unit>
int cut_words(unit_masks& masks, int count, bool open, const Unit* units,
              const scan_functions& functions, word_chunk& chunk) {
    if (open && count > 0) count = last_gap(masks, count);
    functions.cut(Unit{})(masks, count, units, chunk);
    return count;
}

// Gathers the flags of units; 8 more than `count` can be written.
void gather_masks(uint8_t* flags, int count, unit_masks& masks) {
    std::memset(flags + count, 0, 8);
    for (int i = 0; i < (count + 63) >> 6; ++i) masks.letters[i] = masks.singles[i] = 0;
    for (int i = 0; i < count; i += 8) {
        masks.letters[i >> 6] |= gather_8_bits(flags + i, 0) << (i & 63);
        masks.singles[i >> 6] |= gather_8_bits(flags + i, 1) << (i & 63);
    }
}

// The units, all of them letters, of a character that does not become one or none by the table;
// returns how many, or -1 if it blocks.
int expand(uint32_t code, uint32_t entry, const char_classes& classes, uint16_t* units) {
    if (code >= 0x10000) {
        if (!classes.is_astral_letter(code)) return -1;
        units[0] = static_cast<uint16_t>(0xD800 | (code - 0x10000) >> 10);
        units[1] = static_cast<uint16_t>(0xDC00 | (code & 0x3FF));
        return 2;
    }
    if (entry == char_classes::kBlocked) return -1;
    if (entry == char_classes::kHangul) {
        uint32_t parts[kMaxDecomposition];
        const int count = unicode_decompose(code, parts);
        for (int i = 0; i < count; ++i) units[i] = static_cast<uint16_t>(parts[i]);
        return count;
    }
    const char_classes::expansion& form = classes.expansions[entry & ~char_classes::kSpecial];
    std::copy_n(form.units, form.count, units);
    return form.count;
}

}  // namespace

template <typename Char>
void scan_ascii(const text_rest<Char>& rest, const char_classes& classes,
                const scan_functions& functions, word_chunk& chunk) {
    const int count = static_cast<int>(std::min<int64_t>(word_chunk::kCharacters, rest.length));
    const auto classify = functions.classify(Char{});
    unit_masks masks;
    int done = 0;
    uint64_t stop = 0;
    chunk.blocked = false;
    for (int at = 0; at < count && stop == 0; at += 64) {
        const int taken = std::min(64, count - at);
        ascii_masks found;
        classify(rest.text + at, taken, classes, chunk.bytes + at, found);
        uint64_t strange = ~(found.letters | found.singles | found.spaces) & first_bits(taken);
        for (uint64_t starts = found.starts & first_bits(taken); starts != 0; starts &= starts - 1) {
            const int place = __builtin_ctzll(starts);
            if (classes.may_be_added(rest.text, at + place, rest.length)) strange |= 1ull << place;
        }
        masks.letters[at >> 6] = found.letters;
        masks.singles[at >> 6] = found.singles;
        stop = strange;
        done = at + taken;
        if (stop != 0) {
            done = at + __builtin_ctzll(stop);
            chunk.blocked = (found.beyond & stop & (0 - stop)) == 0;
        }
    }
    const bool open = done < rest.length;
    chunk.consumed = cut_words(masks, done, open, chunk.bytes, functions, chunk);
    if (chunk.consumed == 0 && done > 0) chunk.blocked = true;
}

template <typename Char>
void scan_wide(const text_rest<Char>& rest, const char_classes& classes,
               const scan_functions& functions, word_chunk& chunk) {
    const int length = static_cast<int>(std::min<int64_t>(word_chunk::kCharacters, rest.length));
    const uint32_t* table = classes.wide.data();
    uint8_t flags[word_chunk::kUnits + 8];
    int at = 0, count = 0;
    bool blocked = false;
    for (; at < length && count <= word_chunk::kUnits - kMaxNormal; ++at) {
        const uint32_t code = rest.text[at];
        const uint32_t entry =
            sizeof(Char) < 4 || code < 0x10000 ? table[code] : char_classes::kSpecial;
        uint32_t flag = entry >> char_classes::kFlagsShift & 0xFF;
        int num_units = static_cast<int>(entry >> char_classes::kCountShift);
        chunk.units[count] = static_cast<uint16_t>(entry);
        if ((entry & char_classes::kUnusual) != 0) {
            if ((entry & char_classes::kSpecial) != 0) {
                num_units = expand(code, entry, classes, chunk.units + count);
                blocked = num_units < 0;
                for (int i = 1; i < num_units; ++i) {
                    flags[count + i] = char_classes::kLetter;
                    chunk.sources[count + i] = static_cast<uint16_t>(at);
                }
                flag = char_classes::kLetter;
            } else {
                blocked = classes.may_be_added(rest.text, at, rest.length);
            }
            if (blocked) break;
        }
        flags[count] = static_cast<uint8_t>(flag);
        chunk.sources[count] = static_cast<uint16_t>(at);
        count += num_units;
    }
    unit_masks masks;
    gather_masks(flags, count, masks);
    const bool open = blocked || at < rest.length;
    const int done = cut_words(masks, count, open, chunk.units, functions, chunk);
    chunk.consumed = done == count ? at : chunk.sources[done];
    chunk.blocked = blocked || (chunk.consumed == 0 && at > 0);
}

template void scan_ascii(const text_rest<uint8_t>&, const char_classes&, const scan_functions&,
                         word_chunk&);
template void scan_wide(const text_rest<uint8_t>&, const char_classes&, const scan_functions&,
                        word_chunk&);
template void scan_ascii(const text_rest<uint16_t>&, const char_classes&, const scan_functions&,
                         word_chunk&);
template void scan_wide(const text_rest<uint16_t>&, const char_classes&, const scan_functions&,
                        word_chunk&);
template void scan_ascii(const text_rest<uint32_t>&, const char_classes&, const scan_functions&,
                         word_chunk&);
template void scan_wide(const text_rest<uint32_t>&, const char_classes&, const scan_functions&,
                        word_chunk&);

}  // namespace encoder_engine
