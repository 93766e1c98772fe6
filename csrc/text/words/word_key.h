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

    // Makes the key of `size` <= 16 bytes; all 16 bytes must be readable.
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

// The key of a word of up to kBytes bytes.
template <int kBytes>
struct wide_word_key {
    static constexpr int kNumParts = kBytes / 8;
    static constexpr int kMaxSize = kBytes;
    uint64_t parts[kNumParts];
    uint64_t hash;

    // kBytes bytes must be readable.
    static wide_word_key read(const uint8_t* bytes, int64_t size) {
        wide_word_key out{{}, 0};
        for (int i = 0; i < kBytes; i += word_key::kMaxSize) {
            const int64_t left = size - i;
            const word_key part =
                word_key::read(bytes + i, left < 0 ? 0 : left < 16 ? left : word_key::kMaxSize);
            out.parts[i / 8] = part.parts[0];
            out.parts[i / 8 + 1] = part.parts[1];
            out.hash = part.hash + 0xD6E8FEB86659FD93ull * (out.hash >> 7 ^ out.hash << 21);
        }
        return out;
    }
};
using long_word_key = wide_word_key<32>;
using huge_word_key = wide_word_key<64>;

}  // namespace encoder_engine
