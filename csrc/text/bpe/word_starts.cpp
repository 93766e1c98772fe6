// The formulas of each expression, and the loops over rare bits.
#include "text/bpe/word_starts.h"

#include <algorithm>

namespace encoder_engine {
namespace {

constexpr int kBlocks = word_starts::kBytes / 64;
// Behind the end of a stretch that is not the last: there a contraction might show only later.
constexpr int kUnsure = 4;

// Masks of a stretch, with a block of zeros behind them.
struct stretch {
    const classed_text& text;
    int size, num_blocks;
    uint64_t letters[kBlocks + 1], numbers[kBlocks + 1], spaces[kBlocks + 1], blanks[kBlocks + 1];
    uint64_t newlines[kBlocks + 1], quotes[kBlocks + 1], others[kBlocks + 1], inner[kBlocks + 1];
    uint64_t starts[kBlocks + 1];
    bool any_newline = false, any_quote = false, any_number = false;
    bool wide_space = false, wide_number = false;  // of more than one byte

    stretch(const classed_text& from, mask_function read, bool& nul)
        : text(from), size(static_cast<int>(from.size)), num_blocks((size + 63) >> 6) {
        uint64_t nuls = 0;
        for (int i = 0; i < num_blocks; ++i) {
            class_masks masks;
            read(from.bytes + 64 * i, from.classes + 64 * i, from.ascii, masks);
            const int left = size - 64 * i;
            const uint64_t used = left >= 64 ? ~0ull : (1ull << left) - 1;
            letters[i] = masks.letters & used;
            numbers[i] = masks.numbers & used;
            spaces[i] = masks.spaces & used;
            blanks[i] = masks.blanks & used;
            newlines[i] = masks.newlines & used;
            quotes[i] = masks.quotes & used;
            others[i] = ~(masks.letters | masks.numbers | masks.spaces) & used;
            inner[i] = masks.inner & used;
            nuls |= masks.nuls & used;
            any_newline = any_newline || newlines[i] != 0;
            any_quote = any_quote || quotes[i] != 0;
            any_number = any_number || numbers[i] != 0;
            wide_space = wide_space || (spaces[i] & masks.beyond) != 0;
            wide_number = wide_number || (numbers[i] & masks.beyond) != 0;
        }
        for (uint64_t* masks : {letters, numbers, spaces, blanks, newlines, quotes, others, inner, starts}) {
            masks[num_blocks] = 0;
        }
        nul = nuls != 0;
    }
    static bool has(const uint64_t* masks, int at) { return (masks[at >> 6] >> (at & 63) & 1) != 0; }
    void start(int at) { if (at < size) starts[at >> 6] |= 1ull << (at & 63); }
    void clear(int at) { if (at < size) starts[at >> 6] &= ~(1ull << (at & 63)); }
    void clear(int begin, int end) {
        for (int block = begin >> 6; 64 * block < end; ++block) {
            const int left = end - 64 * block;
            const uint64_t before = block == begin >> 6 ? (1ull << (begin & 63)) - 1 : 0;
            starts[block] &= before | (left >= 64 ? 0 : ~0ull << left);
        }
    }
    // Where the run of a class that `at` may belong to ends.
    static int end_of_run(const uint64_t* masks, int at) {
        int block = at >> 6;
        uint64_t others = ~masks[block] & ~0ull << (at & 63);
        while (others == 0) others = ~masks[++block];
        return 64 * block + __builtin_ctzll(others);
    }
    // The last place before `at` that is of a class, or with `flip` of all ones is not; -1: none.
    static int last_before(int at, const uint64_t* masks, uint64_t flip) {
        int block = (at - 1) >> 6;
        uint64_t bits = at == 0 ? 0 : (masks[block] ^ flip) & ~0ull >> (-at & 63);
        while (bits == 0 && block > 0) bits = masks[--block] ^ flip;
        return bits == 0 ? -1 : 64 * block + 63 - __builtin_clzll(bits);
    }
};

// A mask shifted by one character, with the last bit of the block before.
uint64_t after(const uint64_t* masks, int i) {
    return masks[i] << 1 | (i > 0 ? masks[i - 1] >> 63 : 0);
}

// The last character of each run of white space that something else follows; `stops` ends a text.
uint64_t last_spaces(const stretch& s, int i, const uint64_t* stops) {
    uint64_t next = s.spaces[i] >> 1 | s.spaces[i + 1] << 63;
    if (stops != nullptr) next |= stops[i] >> 1 | stops[i + 1] << 63;
    // At the end of the stretch white space is all one word, or nobody knows yet.
    if (i == s.num_blocks - 1) next |= 1ull << ((s.size - 1) & 63);
    return s.spaces[i] & ~next;
}

// Begins a word at the first byte of the space, whose last byte is known.
void start_last_spaces(stretch& s, int i, uint64_t bits) {
    if (!s.wide_space) {
        s.starts[i] |= bits;
        return;
    }
    for (; bits != 0; bits &= bits - 1) {
        int at = 64 * i + __builtin_ctzll(bits);
        while (stretch::has(s.inner, at)) --at;
        s.start(at);
    }
}

uint64_t begins(const uint64_t* masks, int i) { return masks[i] & ~after(masks, i); }

void cut_gpt2(stretch& s, bool digits_alone) {
    for (int i = 0; i < s.num_blocks; ++i) {
        const uint64_t after_blank = after(s.blanks, i);
        uint64_t starts = begins(s.letters, i) | begins(s.others, i);
        if (!digits_alone) starts |= begins(s.numbers, i);
        starts &= ~after_blank;
        if (digits_alone) starts |= s.numbers[i] & ~s.inner[i];
        s.starts[i] |= starts | begins(s.spaces, i);
        start_last_spaces(s, i, last_spaces(s, i, digits_alone ? s.numbers : nullptr));
    }
}

void cut_modern(stretch& s, bool digits_alone) {
    uint64_t carried = 0;  // the first character of other text goes on from the block before
    for (int i = 0; i < s.num_blocks; ++i) {
        const uint64_t after_blank = after(s.blanks, i), others = s.others[i];
        const uint64_t other_starts = begins(s.others, i) & ~after_blank;
        // All bytes of the first character of such a run: letters behind it belong to it.
        const uint64_t inner = s.inner[i] & others;
        uint64_t first = other_starts | (carried & inner);
        for (int byte = 1; byte < 4; ++byte) first |= first << 1 & inner;
        const uint64_t joined = (after(s.spaces, i) & ~after(s.newlines, i)) | first << 1 |
                                (i > 0 ? carried : 0);
        carried = first >> 63;
        const uint64_t numbers = digits_alone ? s.numbers[i] & ~s.inner[i] : begins(s.numbers, i);
        s.starts[i] |= (begins(s.letters, i) & ~joined) | numbers | other_starts | begins(s.spaces, i);
        start_last_spaces(s, i, last_spaces(s, i, nullptr));
    }
}

void cut_by_three(stretch& s) {
    for (int i = 0; i < s.num_blocks; ++i) {
        for (uint64_t bits = begins(s.numbers, i); bits != 0; bits &= bits - 1) {
            const int first = 64 * i + __builtin_ctzll(bits);
            for (int at = first; at < s.size && stretch::has(s.numbers, at); ++at) {
                if ((at - first) % 3 == 0) s.start(at);
            }
        }
    }
}

// Cuts a run [begin, end) of white space with line ends: those that follow other text belong to it,
// then all up to the last line end is a word, then come blanks as elsewhere.
void cut_line_ends(stretch& s, int begin, int end, int last_newline) {
    const bool open = end == s.size && !s.text.last;
    int at = begin;
    if (begin > 0 && stretch::has(s.others, begin - 1)) {
        at = stretch::end_of_run(s.newlines, at);
    }
    s.clear(begin, end);
    if (at < end) s.start(at);
    if (open) return;
    const int rest = std::max(at, last_newline + 1);
    if (rest < end) {
        s.start(rest);
        if (end < s.size && end - rest >= 2) s.start(end - 1);
    }
    if (end == s.size) return;
    const bool joins = rest < end && (stretch::has(s.letters, end) ||
                                      (stretch::has(s.others, end) && stretch::has(s.blanks, end - 1)));
    joins ? s.clear(end) : s.start(end);
}

void cut_newlines(stretch& s) {
    int done = 0;
    for (int i = 0; i < s.num_blocks; ++i) {
        for (uint64_t bits = begins(s.newlines, i); bits != 0; bits &= bits - 1) {
            const int first = 64 * i + __builtin_ctzll(bits);
            if (first < done) continue;
            done = stretch::end_of_run(s.spaces, first);
            cut_line_ends(s, stretch::last_before(first, s.spaces, ~0ull) + 1, done,
                          stretch::last_before(done, s.newlines, 0));
        }
    }
}

void cut_contractions(stretch& s, word_pattern pattern) {
    const word_matcher matcher(pattern, s.text);
    for (int i = 0; i < s.num_blocks; ++i) {
        for (uint64_t bits = s.quotes[i] & s.starts[i]; bits != 0; bits &= bits - 1) {
            const int at = 64 * i + __builtin_ctzll(bits);
            const int taken = static_cast<int>(matcher.contraction(at));
            for (int place = 1; place < taken; ++place) s.clear(at + place);
            if (taken > 0) s.start(at + taken);
        }
    }
}

void write_words(stretch& s, places_function write, word_starts& out) {
    s.starts[0] |= 1;
    const int sure = s.text.last ? s.size : std::max(1, s.size - kUnsure);
    const int num_blocks = (sure + 63) >> 6;
    s.starts[num_blocks - 1] &= ~0ull >> (-sure & 63);
    out.count = static_cast<int>(write(s.starts, num_blocks, out.places) - out.places);
    if (s.text.last) {
        out.places[out.count] = static_cast<uint16_t>(s.size);
    } else {
        --out.count;
    }
}

}  // namespace

void pattern_cutter::match(const classed_text& text, word_starts& out) const {
    word_matcher matcher(pattern_, text);
    int64_t at = 0;
    for (out.count = 0; at < text.size; ++out.count) {
        const int64_t end = matcher.match(at);
        if (end < 0) break;
        out.places[out.count] = static_cast<uint16_t>(at);
        at = end;
    }
    out.places[out.count] = static_cast<uint16_t>(at);
}

void pattern_cutter::cut(const classed_text& text, word_starts& out) const {
    stretch s(text, read_, out.nul);
    for (int i = 0; i < s.num_blocks; ++i) s.starts[i] = 0;
    switch (pattern_) {
        case word_pattern::whole:
        case word_pattern::clip: return match(text, out);
        case word_pattern::gpt2:
        case word_pattern::gpt2_digits:
            cut_gpt2(s, pattern_ == word_pattern::gpt2_digits);
            break;
        case word_pattern::digits_one:
        case word_pattern::digits_three:
            if ((s.wide_space && s.any_newline) ||
                (s.wide_number && pattern_ == word_pattern::digits_three)) {
                return match(text, out);
            }
            cut_modern(s, pattern_ == word_pattern::digits_one);
            if (s.any_number && pattern_ == word_pattern::digits_three) cut_by_three(s);
            if (s.any_newline) cut_newlines(s);
            break;
        case word_pattern::marks:
            for (int i = 0; i < s.num_blocks; ++i) s.starts[i] = s.blanks[i];
            break;
        case word_pattern::blanks:
            for (int i = 0; i < s.num_blocks; ++i) s.starts[i] = begins(s.blanks, i);
            break;
    }
    s.starts[0] |= 1;
    const bool contracts = pattern_ != word_pattern::marks && pattern_ != word_pattern::blanks;
    if (contracts && s.any_quote) cut_contractions(s, pattern_);
    write_words(s, write_, out);
}

}  // namespace encoder_engine
