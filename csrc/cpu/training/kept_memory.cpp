// Free blocks by size, each with the time when it was freed.
#include "cpu/training/kept_memory.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "common/zeroed_memory.h"

namespace encoder_engine {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeast = size_t{64} << 10;
// Blocks taken meanwhile: more than a step of 24 layers takes.
constexpr uint64_t kKeptFor = 4096;

struct free_block {
    void* data;
    uint64_t freed_at;
};

struct kept_blocks {
    std::mutex mutex;
    std::map<size_t, std::vector<free_block>> by_size;
    uint64_t taken = 0;
};

// Never destroyed: tensors may be freed when the process ends.
kept_blocks& blocks() {
    static kept_blocks* const all = new kept_blocks;
    return *all;
}

// Quarters of powers of two: micro-batches of nearly equal length share blocks.
size_t rounded_size(size_t bytes) {
    size_t power = kLeast;
    while (power < bytes) power *= 2;
    const size_t step = power / 8;
    const size_t size = power == kLeast ? power : (bytes + step - 1) / step * step;
    return size >= kHugePage ? (size + kHugePage - 1) / kHugePage * kHugePage : size;
}

void* allocate(size_t size) {
    void* const data = allocate_aligned(size >= kHugePage ? kHugePage : 4096, size);
#if defined(__linux__)
    if (size >= kHugePage) madvise(data, size, MADV_HUGEPAGE);
#endif
    return data;
}

// Returns blocks to the system that were freed before `time`.
size_t release_before(kept_blocks& all, uint64_t time) {
    size_t bytes = 0;
    for (auto& [size, found] : all.by_size) {
        size_t left = 0;
        for (const free_block& block : found) {
            if (block.freed_at >= time) {
                found[left++] = block;
            } else {
                free_aligned(block.data);
                bytes += size;
            }
        }
        found.resize(left);
    }
    return bytes;
}

}  // namespace

kept_memory::kept_memory(size_t bytes) : data_(nullptr), bytes_(rounded_size(bytes)) {
    kept_blocks& all = blocks();
    const std::lock_guard<std::mutex> lock(all.mutex);
    ++all.taken;
    std::vector<free_block>& found = all.by_size[bytes_];
    if (!found.empty()) {
        data_ = found.back().data;
        found.pop_back();
        return;
    }
    if (all.taken > kKeptFor) release_before(all, all.taken - kKeptFor);
    data_ = allocate(bytes_);
}

kept_memory::~kept_memory() {
    kept_blocks& all = blocks();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.by_size[bytes_].push_back({data_, all.taken});
}

size_t release_kept_memory() {
    kept_blocks& all = blocks();
    const std::lock_guard<std::mutex> lock(all.mutex);
    return release_before(all, UINT64_MAX);
}

}  // namespace encoder_engine
