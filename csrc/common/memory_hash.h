// A 64-bit hash of pieces of memory, by several threads, to notice changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace encoder_engine {

struct memory_piece {
    const uint8_t* bytes;
    size_t size;
};

// The hash depends on the order of the pieces, not on the number of threads. A change within one word of
// 8 bytes always changes it; other changes collide once in 2^64. Not cryptographic.
uint64_t hash_memory(const std::vector<memory_piece>& pieces, int num_threads);

}  // namespace encoder_engine
