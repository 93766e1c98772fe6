// The bytes of a word as numbers, by which the caches know it.
#pragma once

#include <cstdint>
#include <cstring>

namespace encoder_engine {

// A word of up to 16 bytes, zero beyond its end, and its hash.
struct word_key {
    static constexpr int kNumParts = 2;
    static constexpr int kMaxSize = 16;
    uint64_t parts[kNumParts];
    uint64_t hash;  // to be used from the top

    // From `size` <= 16 bytes; 16 must be readable.
    static word_key read(const uint8_t* bytes, int64_t size) {
        uint64_t low, high;
        std::memcpy(&low, bytes, 8);
        std::memcpy(&high, bytes + 8, 8);
        return make(low & kMasks[size].low, high & kMasks[size].high);
    }
    static word_key make(uint64_t low, uint64_t high) {
        // Multiplicative hashing: the top bits of a product depend on all bits below.
        return {{low, high}, (low * 0x9E3779B97F4A7C15ull) ^ (high * 0xC2B2AE3D27D4EB4Full)};
    }

private:
    struct mask {
        uint64_t low, high;
    };
    static constexpr uint64_t ones(int bytes) {
        return bytes >= 8 ? ~0ull : (1ull << (8 * bytes)) - 1;
    }
    static constexpr mask mask_of(int size) { return {ones(size), size > 8 ? ones(size - 8) : 0}; }
    static const mask kMasks[kMaxSize + 1];
};

// A word of 17 to 32 bytes.
struct long_word_key {
    static constexpr int kNumParts = 4;
    static constexpr int kMaxSize = 32;
    uint64_t parts[kNumParts];
    uint64_t hash;

    // 32 bytes must be readable.
    static long_word_key read(const uint8_t* bytes, int64_t size) {
        const word_key low = word_key::read(bytes, word_key::kMaxSize);
        const word_key high = word_key::read(bytes + word_key::kMaxSize, size - word_key::kMaxSize);
        return {{low.parts[0], low.parts[1], high.parts[0], high.parts[1]},
                low.hash + 0xD6E8FEB86659FD93ull * (high.hash >> 7)};
    }
};

}  // namespace encoder_engine
