// One bit of each of eight bytes, side by side.
#pragma once

#include <cstdint>
#include <cstring>

namespace encoder_engine {

// Bit i of the result is bit `bit` of bytes[i]: a multiplication moves each to its place.
inline uint64_t gather_8_bits(const uint8_t* bytes, int bit) {
    constexpr uint64_t kOnes = 0x0101010101010101ull, kGather = 0x0102040810204080ull;
    uint64_t eight;
    std::memcpy(&eight, bytes, 8);
    return (eight >> bit & kOnes) * kGather >> 56;
}

}  // namespace encoder_engine
