// Large tables of zeros, on huge pages where the system has them.
#pragma once

#include <cstddef>
#include <cstdlib>

namespace encoder_engine {

// Zeros at a multiple of 64 bytes; throws std::bad_alloc. Release with std::free().
void* allocate_zeros(size_t num_bytes);

struct free_memory {
    void operator()(void* memory) const { std::free(memory); }
};

}  // namespace encoder_engine
