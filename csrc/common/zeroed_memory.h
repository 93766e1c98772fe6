// Aligned memory, and large tables of zeros, on huge pages where the system has them.
#pragma once

#include <cstddef>

namespace encoder_engine {

// Memory at a multiple of `alignment`, a power of two that divides `num_bytes`; throws std::bad_alloc.
void* allocate_aligned(size_t alignment, size_t num_bytes);

// Releases memory of allocate_aligned() or allocate_zeros().
void free_aligned(void* memory);

// Zeros at a multiple of 64 bytes; throws std::bad_alloc.
void* allocate_zeros(size_t num_bytes);

struct free_memory {
    void operator()(void* memory) const { free_aligned(memory); }
};

}  // namespace encoder_engine
