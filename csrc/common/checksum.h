// A checksum against damage, at memory bandwidth; not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace encoder_engine {

// Four lanes of multiply and rotate over 32 bytes at a time, zero-padded; the size is hashed too.
inline uint64_t checksum(const uint8_t* bytes, size_t size) {
    constexpr uint64_t kPrime = 0x9E3779B97F4A7C15ull;
    uint64_t lanes[4] = {1, 2, 3, size};
    const auto take = [&lanes](const uint8_t* from, size_t count) {
        uint64_t words[4] = {};
        std::memcpy(words, from, count);
        for (int i = 0; i < 4; ++i) {
            const uint64_t mixed = (lanes[i] ^ words[i]) * kPrime;
            lanes[i] = mixed ^ mixed >> 29;
        }
    };
    // A copy of a size known beforehand is a load; of any other it is a call.
    size_t at = 0;
    for (; size - at >= 32; at += 32) take(bytes + at, 32);
    if (at < size) take(bytes + at, size - at);
    uint64_t out = 0;
    for (const uint64_t lane : lanes) {
        out = (out ^ lane) * kPrime;
        out ^= out >> 32;
    }
    return out;
}

}  // namespace encoder_engine
