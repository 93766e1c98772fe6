// A bounded memory of words and their pieces, one per thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

namespace encoder_engine {

// A word of up to 16 bytes, zero beyond its end.
struct word_key {
    uint64_t low = 0, high = 0;
    uint32_t size = 0;

    static constexpr uint32_t kMaxSize = 16;

    // From `size` <= 16 bytes; 16 must be readable.
    static word_key read(const uint8_t* bytes, uint32_t size) {
        word_key key;
        std::memcpy(&key.low, bytes, 8);
        std::memcpy(&key.high, bytes + 8, 8);
        key.low &= kMasks[size].low;
        key.high &= kMasks[size].high;
        key.size = size;
        return key;
    }

private:
    struct mask {
        uint64_t low, high;
    };
    static const mask kMasks[kMaxSize + 1];
};

// Two ways in a cache line; a new word displaces the older of the two. 512 KiB: what the second
// level of cache holds beside the trie's hot part.
class word_cache {
public:
    static constexpr int kMaxPieces = 4;

    word_cache() : lines_(new line[kLines]()) {}

    // Writes four values to `out`, of which the first so many are the pieces; 0 if unknown.
    int find(const word_key& key, int32_t* out) const {
        const line& l = lines_[place(key)];
        for (const entry& e : l.ways) {
            if (e.low != key.low || e.high != key.high || e.ids[1] >> kIdBits != key.size) continue;
            for (int i = 0; i < kMaxPieces; ++i) out[i] = static_cast<int32_t>(e.ids[i] & kIdMask);
            return static_cast<int>(e.ids[0] >> kIdBits);
        }
        return 0;
    }

    // Remembers 1 to kMaxPieces pieces.
    void insert(const word_key& key, const int32_t* pieces, int count) {
        line& l = lines_[place(key)];
        l.ways[1] = l.ways[0];
        entry& e = l.ways[0];
        e = {key.low, key.high, {}};
        for (int i = 0; i < count; ++i) e.ids[i] = static_cast<uint32_t>(pieces[i]);
        e.ids[0] |= static_cast<uint32_t>(count) << kIdBits;
        e.ids[1] |= key.size << kIdBits;
    }

private:
    static constexpr int kLineBits = 13;
    static constexpr size_t kLines = size_t{1} << kLineBits;
    // Ids take 27 bits (see char_action); the rest of two of them hold the count and the size.
    static constexpr int kIdBits = 27;
    static constexpr uint32_t kIdMask = (1u << kIdBits) - 1;

    struct entry {
        uint64_t low, high;
        uint32_t ids[kMaxPieces];
    };
    struct alignas(64) line {
        entry ways[2];
    };

    static size_t place(const word_key& key) {
        // Multiplicative hashing: the top bits of a product depend on all bits below.
        const uint64_t mixed = (key.low * 0x9E3779B97F4A7C15ull) ^ (key.high * 0xC2B2AE3D27D4EB4Full);
        return (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9ull >> (64 - kLineBits);
    }

    std::unique_ptr<line[]> lines_;
};

}  // namespace encoder_engine
