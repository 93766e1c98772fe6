// Memory of tensors that come again in each training step: kept, instead of returned to the system.
#pragma once

#include <cstddef>

namespace encoder_engine {

// A block of at least `bytes`, aligned to 64 or more. The destructor keeps it for the next one of its
// size. Throws std::bad_alloc.
//
// A step of training frees and takes the same sizes again. From malloc, which maps large blocks anew,
// it took 70,000 page faults, 15 % of its time. A block that was not taken for kKeptFor others is
// returned to the system; blocks of 2 MiB and more are on huge pages.
class kept_memory {
public:
    explicit kept_memory(size_t bytes);
    ~kept_memory();
    kept_memory(const kept_memory&) = delete;
    kept_memory& operator=(const kept_memory&) = delete;

    void* data() const { return data_; }
    size_t bytes() const { return bytes_; }

private:
    void* data_;
    size_t bytes_;
};

// Returns the blocks that nobody holds to the system; returns how many bytes they had.
size_t release_kept_memory();

}  // namespace encoder_engine
