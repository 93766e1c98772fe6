// The cache that is asked first: four short words of few pieces to a cache line.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "common/zeroed_memory.h"
#include "text/words/word_key.h"

namespace encoder_engine {

// A cache of words of up to 8 bytes and 2 pieces, four to a line: 16 bytes a word. Words do not end
// with zero bytes, so the key alone determines their size.
template <int kLineBits>
class front_word_cache {
public:
    static constexpr int kMaxPieces = 2, kMaxBytes = 8;

    front_word_cache() : lines_(static_cast<line*>(allocate_zeros(sizeof(line) << kLineBits))) {}

    // Writes kMaxPieces values to `out` and returns how many of them are the word's pieces; 0: not
    // found.
    int find(const word_key& key, int32_t* out) const {
        const line& l = line_of(key);
        unsigned equal = 0;
        for (unsigned i = 0; i < kWords; ++i) equal |= unsigned{l.keys[i] == key.parts[0]} << i;
        if (equal == 0) return 0;
        const uint64_t found = l.pieces[__builtin_ctz(equal)];
        const uint64_t ids = found & ~kTwo;
        std::memcpy(out, &ids, sizeof ids);
        return 1 + static_cast<int>(found >> 63);
    }
    // Stores a word of 1 or 2 pieces; the oldest of the line's four words is dropped.
    void insert(const word_key& key, const int32_t* pieces, int count) {
        line& l = line_of(key);
        std::memmove(l.keys + 1, l.keys, sizeof l.keys - sizeof l.keys[0]);
        std::memmove(l.pieces + 1, l.pieces, sizeof l.pieces - sizeof l.pieces[0]);
        l.keys[0] = key.parts[0];
        l.pieces[0] = static_cast<uint32_t>(pieces[0]);
        if (count == 2) l.pieces[0] |= static_cast<uint64_t>(static_cast<uint32_t>(pieces[1])) << 32 | kTwo;
    }
    // The address of a key's line, for prefetching.
    const void* place(const word_key& key) const { return &line_of(key); }

private:
    static constexpr unsigned kWords = 4;
    static constexpr uint64_t kTwo = 1ull << 63;

    struct line {
        uint64_t keys[kWords];
        uint64_t pieces[kWords];
    };
    line& line_of(const word_key& key) const { return lines_[key.hash >> (64 - kLineBits)]; }

    std::unique_ptr<line[], free_memory> lines_;
};

}  // namespace encoder_engine
