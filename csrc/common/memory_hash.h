// A 64-bit hash of pieces of memory, by several threads: whether anything in them has changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace encoder_engine {

struct memory_piece {
    const uint8_t* bytes;
    size_t size;
};

// Hashes the pieces in order, whatever the number of threads. Any change within one word of 8 bytes
// changes the result; other changes go unnoticed once in 2^64. No defence against intent.
uint64_t hash_memory(const std::vector<memory_piece>& pieces, int num_threads);

}  // namespace encoder_engine
