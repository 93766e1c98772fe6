// Caches of words and their pieces, of fixed size, one set per thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "common/zeroed_memory.h"
#include "text/words/word_key.h"

namespace encoder_engine {

// A cache line of two words, each of up to 16 bytes and 4 pieces. Words do not end with zero bytes,
// so the key alone determines their size.
class word_line {
public:
    static constexpr int kMaxPieces = 4;

    // Writes kMaxPieces values to `out` and returns how many of them are the word's pieces; 0: not
    // found.
    int find(const word_key& key, int32_t* out) const {
        // Computed, not branched on: which of the two words matches is often mispredicted.
        const uint64_t not_first = different(ways_[0], key);
        const uint64_t not_second = different(ways_[1], key);
        if ((not_first & not_second) != 0) return 0;
        const entry& found = ways_[not_first];
        const uint64_t pieces[2] = {found.pieces[0] & kIdMasks, found.pieces[1] & kIdMasks};
        std::memcpy(out, pieces, sizeof pieces);
        return static_cast<int>(found.pieces[1] >> (32 + kIdBits));
    }
    // Stores a word of 1 to kMaxPieces pieces; the older of the line's two words is dropped.
    void insert(const word_key& key, const int32_t* pieces, int count) {
        ways_[1] = ways_[0];
        ways_[0] = {{key.parts[0], key.parts[1]}, {}};
        int32_t ids[kMaxPieces] = {};
        std::memcpy(ids, pieces, static_cast<size_t>(count) * sizeof *ids);
        std::memcpy(ways_[0].pieces, ids, sizeof ids);
        ways_[0].pieces[1] |= static_cast<uint64_t>(count) << (32 + kIdBits);
    }

private:
    // Ids take 27 bits (see char_action); the rest of the last one holds the count.
    static constexpr int kIdBits = 27;
    static constexpr uint64_t kIdMasks = ((1ull << kIdBits) - 1) * 0x100000001ull;

    struct entry {
        uint64_t parts[word_key::kNumParts];
        uint64_t pieces[kMaxPieces / 2];  // ids in pairs, the count in the top bits
    };
    static uint64_t different(const entry& e, const word_key& key) {
        const uint64_t bits = (e.parts[0] ^ key.parts[0]) | (e.parts[1] ^ key.parts[1]);
        return (bits | (0 - bits)) >> 63;
    }
    entry ways_[2];
};

// A cache of lines of two words; a new word displaces the older of its line.
template <int kLineBits>
class paired_word_cache {
public:
    static constexpr int kMaxPieces = word_line::kMaxPieces;

    paired_word_cache()
        : lines_(static_cast<word_line*>(allocate_zeros(sizeof(word_line) << kLineBits))) {}

    int find(const word_key& key, int32_t* out) const { return line_of(key).find(key, out); }
    void insert(const word_key& key, const int32_t* pieces, int count) {
        line_of(key).insert(key, pieces, count);
    }
    // The address of a key's line, for prefetching.
    const void* place(const word_key& key) const { return &line_of(key); }

private:
    word_line& line_of(const word_key& key) const { return lines_[key.hash >> (64 - kLineBits)]; }

    std::unique_ptr<word_line[], free_memory> lines_;
};

// A cache of words with longer keys or more pieces; a new word displaces the older of its pair.
template <typename Key, int kPieces, int kPairBits>
class long_word_cache {
public:
    static constexpr int kMaxPieces = kPieces;

    long_word_cache()
        : pairs_(static_cast<pair*>(allocate_zeros(sizeof(pair) << kPairBits))) {}

    // Writes kMaxPieces values to `out` and returns how many of them are the word's pieces; 0: not
    // found.
    int find(const Key& key, int32_t* out) const {
        for (const entry& e : pair_of(key).ways) {
            uint64_t different = 0;
            for (int i = 0; i < Key::kNumParts; ++i) different |= e.parts[i] ^ key.parts[i];
            if (different != 0) continue;
            std::memcpy(out, e.ids, sizeof e.ids);
            return e.count;
        }
        return 0;
    }
    // Stores a word of 1 to kMaxPieces pieces.
    void insert(const Key& key, const int32_t* pieces, int count) {
        entry* ways = pair_of(key).ways;
        ways[1] = ways[0];
        std::memcpy(ways->parts, key.parts, sizeof key.parts);
        std::memcpy(ways->ids, pieces, static_cast<size_t>(count) * sizeof *pieces);
        ways->count = count;
    }
    // The address of a key's pair, for prefetching.
    const void* place(const Key& key) const { return &pair_of(key); }

private:
    struct entry {
        uint64_t parts[Key::kNumParts];
        int32_t ids[kMaxPieces];
        int32_t count;
    };
    static_assert(sizeof(entry) % 64 == 0, "whole cache lines");
    struct pair {
        entry ways[2];
    };
    pair& pair_of(const Key& key) const { return pairs_[key.hash >> (64 - kPairBits)]; }

    std::unique_ptr<pair[], free_memory> pairs_;
};

// All caches of one thread for words of one unit size, keyed by their bytes. Short words of few
// pieces have short_words, which the caller asks first; find() covers all others up to 64 bytes.
// The numbers are the caches' sizes in bits.
template <int kShort, int kSplit, int kLong, int kLongSplit, int kHuge>
class word_memory {
public:
    // The most pieces that find() writes.
    static constexpr int kMaxPieces = 31;

    paired_word_cache<kShort> short_words;

    // Writes up to kMaxPieces values to `out` and returns how many of them are the pieces of a word
    // that is not in short_words; 0: not found. `key` is the key of the first 16 bytes; 64 bytes
    // must be readable.
    int find(const word_key& key, const uint8_t* bytes, int num_bytes, int32_t* out) const {
        if (num_bytes <= word_key::kMaxSize) return split_words_.find(key, out);
        if (num_bytes > huge_word_key::kMaxSize) return 0;
        if (num_bytes > long_word_key::kMaxSize) {
            return huge_words_.find(huge_word_key::read(bytes, num_bytes), out);
        }
        const long_word_key long_key = long_word_key::read(bytes, num_bytes);
        const int known = long_words_.find(long_key, out);
        return known > 0 ? known : long_split_words_.find(long_key, out);
    }
    // Stores the pieces of any word; drops those that are too many for a cache.
    void keep(const word_key& key, const uint8_t* bytes, int num_bytes, const int32_t* pieces,
              int64_t count) {
        if (num_bytes <= word_key::kMaxSize) {
            insert(short_words, key, pieces, count) || insert(split_words_, key, pieces, count);
        } else if (num_bytes <= long_word_key::kMaxSize) {
            const long_word_key long_key = long_word_key::read(bytes, num_bytes);
            insert(long_words_, long_key, pieces, count) ||
                insert(long_split_words_, long_key, pieces, count);
        } else if (num_bytes <= huge_word_key::kMaxSize) {
            insert(huge_words_, huge_word_key::read(bytes, num_bytes), pieces, count);
        }
    }

private:
    template <typename Cache, typename Key>
    static bool insert(Cache& cache, const Key& key, const int32_t* pieces, int64_t count) {
        if (count > Cache::kMaxPieces) return false;
        cache.insert(key, pieces, static_cast<int>(count));
        return true;
    }

    long_word_cache<word_key, 11, kSplit> split_words_;
    long_word_cache<long_word_key, 7, kLong> long_words_;
    long_word_cache<long_word_key, 23, kLongSplit> long_split_words_;
    long_word_cache<huge_word_key, kMaxPieces, kHuge> huge_words_;
};

}  // namespace encoder_engine
