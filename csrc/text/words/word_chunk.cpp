// Bit masks of letters and single characters, then words, then their keys.
#include "text/words/word_chunk.h"

#include <algorithm>
#include <cstring>

#include "text/words/bit_gather.h"
#include "text/unicode/tables.h"

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

// What a character becomes that does not become one unit or none by the table; -1 units if it
// blocks.
struct expanded_char {
    int num_units;
    uint8_t flag;
    uint32_t ties;
};

expanded_char expand(uint32_t code, uint32_t entry, const char_classes& classes, uint16_t* units) {
    if (code >= 0x10000) {
        if (!classes.is_astral_letter(code)) return {-1, 0, 0};
        units[0] = static_cast<uint16_t>(0xD800 | (code - 0x10000) >> 10);
        units[1] = static_cast<uint16_t>(0xDC00 | (code & 0x3FF));
        return {2, char_classes::kLetter, 0};
    }
    if (entry == char_classes::kBlocked) return {-1, 0, 0};
    if (entry == char_classes::kHangul) {
        uint32_t parts[kMaxDecomposition];
        const int count = unicode_decompose(code, parts);
        for (int i = 0; i < count; ++i) units[i] = static_cast<uint16_t>(parts[i]);
        return {count, char_classes::kLetter, 0};
    }
    const char_classes::expansion& form = classes.expansions[entry & ~char_classes::kSpecial];
    std::copy_n(form.units, form.count, units);
    return {form.count, form.flag, form.ties};
}

// Where the units of a chunk's characters go.
struct unit_writer {
    uint16_t* units;
    uint16_t* sources;
    uint8_t* flags;
    int count = 0;
    uint32_t binds = char_classes::kBinds;  // what the character before does to those that it ties
};

// Turns characters [at, end) into units by the table, up to the first that needs a closer look;
// returns its place.
template <typename Char>
int write_units(const Char* text, int at, int end, const uint32_t* table, unit_writer& out) {
    uint16_t* units = out.units;
    uint16_t* sources = out.sources;
    uint8_t* flags = out.flags;
    int count = out.count;
    uint32_t binds = out.binds;
    for (; at < end; ++at) {
        const uint32_t code = text[at];
        if (sizeof(Char) > 2 && code >= 0x10000) break;
        const uint32_t entry = table[code];
        const uint32_t tied = binds >> char_classes::kBindsShift & char_classes::kTied;
        if ((entry & (char_classes::kUnusual | tied)) != 0) break;
        binds = entry;
        units[count] = static_cast<uint16_t>(entry);
        sources[count] = static_cast<uint16_t>(at);
        flags[count] = static_cast<uint8_t>(entry >> char_classes::kFlagsShift);
        count += (entry & char_classes::kOne) != 0;
    }
    out.count = count;
    out.binds = binds;
    return at;
}

// Whether the character at a place may belong to a cluster with the one before it.
template <typename Char>
bool may_join(const text_rest<Char>& rest, int at, const char_classes& classes) {
    if (at >= rest.length) return false;
    const uint32_t code = rest.text[at];
    return code >= 0x10000 || (classes.wide[code] & (char_classes::kSpecial | char_classes::kTied)) != 0;
}

// Writes the units of a character that write_units() stopped at; false if it blocks.
template <typename Char>
bool write_unusual(const text_rest<Char>& rest, int at, const char_classes& classes,
                   unit_writer& out) {
    const uint32_t code = rest.text[at];
    const uint32_t entry = code < 0x10000 ? classes.wide[code] : char_classes::kSpecial;
    expanded_char found{(entry & char_classes::kOne) != 0,
                        static_cast<uint8_t>(entry >> char_classes::kFlagsShift), entry};
    out.units[out.count] = static_cast<uint16_t>(entry);
    if ((entry & char_classes::kSpecial) != 0) {
        found = expand(code, entry, classes, out.units + out.count);
        const bool space = found.flag == char_classes::kSpace;
        if (found.num_units < 0 || (space && may_join(rest, at + 1, classes))) return false;
    } else if ((found.flag & char_classes::kStart) != 0 &&
               classes.may_be_added(rest.text, at, rest.length)) {
        return false;
    }
    if ((found.ties & out.binds >> char_classes::kBindsShift & char_classes::kTied) != 0) return false;
    out.binds = found.ties;
    for (int i = 0; i < found.num_units; ++i) {
        out.flags[out.count] = found.flag;
        out.sources[out.count++] = static_cast<uint16_t>(at);
    }
    return true;
}

// Classifies up to 64 characters of a text, from `at` on, into a place of a chunk; returns the bits
// of those that are not plain.
template <typename Char>
uint64_t take_64(const text_rest<Char>& rest, int at, int taken, int place,
                 const char_classes& classes, const scan_functions& functions, word_chunk& chunk,
                 unit_masks& masks, ascii_masks& found) {
    functions.classify(Char{})(rest.text + at, taken, classes, chunk.bytes + place, found);
    const uint64_t used = first_bits(taken);
    uint64_t strange = ~(found.letters | found.singles | found.spaces) & used;
    for (uint64_t starts = found.starts & used; starts != 0; starts &= starts - 1) {
        const int start = __builtin_ctzll(starts);
        if (classes.may_be_added(rest.text, at + start, rest.length)) strange |= 1ull << start;
    }
    masks.letters[place >> 6] = found.letters & used;
    masks.singles[place >> 6] = found.singles & used;
    return strange;
}

}  // namespace

template <typename Char>
void scan_ascii(const text_rest<Char>& rest, const char_classes& classes,
                const scan_functions& functions, word_chunk& chunk) {
    const int count = static_cast<int>(std::min<int64_t>(word_chunk::kCharacters, rest.length));
    unit_masks masks;
    int done = 0;
    uint64_t stop = 0;
    chunk.blocked = false;
    for (int at = 0; at < count && stop == 0; at += 64) {
        const int taken = std::min(64, count - at);
        ascii_masks found;
        stop = take_64(rest, at, taken, at, classes, functions, chunk, masks, found);
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

int scan_texts(const text_view* texts, int64_t count, const char_classes& classes,
               const scan_functions& functions, word_chunk& chunk, uint16_t* firsts) {
    unit_masks masks;
    int place = 0, num_texts = 0;
    firsts[0] = 0;
    for (; num_texts < count; ++num_texts) {
        const text_view& text = texts[num_texts];
        // Behind each text at least one unit stays empty, so that no word reaches into the next.
        if (text.width != char_width::ascii || text.length >= word_chunk::kCharacters - place) break;
        const text_rest<uint8_t> rest{static_cast<const uint8_t*>(text.data), text.length};
        const int length = static_cast<int>(text.length);
        uint64_t strange = 0;
        int at = 0;
        for (; at + 64 <= length && strange == 0; at += 64) {
            ascii_masks found;
            strange = take_64(rest, at, 64, place + at, classes, functions, chunk, masks, found);
        }
        if (at < length && strange == 0) {
            ascii_masks found;
            strange = take_64(rest, at, length - at, place + at, classes, functions, chunk, masks, found);
        } else {
            masks.letters[(place + at) >> 6] = masks.singles[(place + at) >> 6] = 0;
        }
        if (strange != 0) break;
        place += at + 64;
        firsts[num_texts + 1] = static_cast<uint16_t>(place);
    }
    functions.cut(uint8_t{})(masks, place, chunk.bytes, chunk);
    return num_texts;
}

template <typename Char>
void scan_wide(const text_rest<Char>& rest, const char_classes& classes,
               const scan_functions& functions, word_chunk& chunk) {
    const int length = static_cast<int>(std::min<int64_t>(word_chunk::kCharacters, rest.length));
    uint8_t flags[word_chunk::kUnits + word_chunk::kPadding];
    unit_writer out{chunk.units, chunk.sources, flags};
    int at = 0;
    bool blocked = false;
    while (at < length && !blocked) {
        const int end = std::min(length, at + word_chunk::kUnits - out.count);
        at = write_units(rest.text, at, end, classes.wide.data(), out);
        if (at == end || out.count + kMaxNormal > word_chunk::kUnits) break;
        blocked = !write_unusual(rest, at, classes, out);
        if (!blocked) ++at;
    }
    out.sources[out.count] = static_cast<uint16_t>(at);
    unit_masks masks;
    gather_masks(flags, out.count, masks);
    const bool open = blocked || at < rest.length;
    const int done = cut_words(masks, out.count, open, chunk.units, functions, chunk);
    chunk.consumed = done == out.count ? at : chunk.sources[done];
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
