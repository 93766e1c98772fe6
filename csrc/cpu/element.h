// The element types of the CPU kernels' tensors.
#pragma once

#include <cstdint>

namespace encoder_engine {

enum class element_type { float32, bfloat16 };

// The upper half of a float32.
struct bfloat16 {
    uint16_t bits;
};

// IEEE 754 binary16.
struct float16 {
    uint16_t bits;
};

// The least multiple of `unit` that is not below `count`.
constexpr int64_t whole(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

}  // namespace encoder_engine
