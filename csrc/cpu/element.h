// What the tensors given to the CPU kernels are made of.
#pragma once

#include <cstdint>

namespace encoder_engine {

enum class element_type { float32, bfloat16 };

// The upper half of a float32.
struct bfloat16 {
    uint16_t bits;
};

}  // namespace encoder_engine
