// Random numbers that are a pure function of a seed and a place.
#pragma once

#include <cstdint>

namespace encoder_engine {

// SplitMix64 (G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014).
class random_stream {
public:
    // Streams of different places are independent.
    random_stream(uint64_t seed, uint64_t place) : state_(mix(mix(seed + kStep) ^ (place * kStep))) {}

    // A number in [0, 1), in steps of 2^-53.
    double uniform() {
        state_ += kStep;
        return static_cast<double>(mix(state_) >> 11) * 0x1.0p-53;
    }

private:
    static constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;
    static uint64_t mix(uint64_t x) {
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        return x ^ (x >> 31);
    }

    uint64_t state_;
};

}  // namespace encoder_engine
