// A table read at random has a page fault and an address translation for each small page.
#include "common/zeroed_memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(_WIN32)
#include <malloc.h>
#elif defined(__linux__)
#include <sys/mman.h>
#endif

namespace encoder_engine {

void* allocate_aligned(size_t alignment, size_t num_bytes) {
#if defined(_WIN32)
    void* memory = _aligned_malloc(num_bytes, alignment);
#else
    void* memory = std::aligned_alloc(alignment, num_bytes);
#endif
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

void free_aligned(void* memory) {
#if defined(_WIN32)
    _aligned_free(memory);
#else
    std::free(memory);
#endif
}

void* allocate_zeros(size_t num_bytes) {
    constexpr size_t kHugePage = size_t{2} << 20;
    constexpr size_t kPage = size_t{64} << 10;  // the largest there is
    const size_t alignment = num_bytes >= kHugePage ? kHugePage : num_bytes >= kPage ? kPage : 64;
    const size_t rounded = (num_bytes + alignment - 1) / alignment * alignment;
    void* memory = allocate_aligned(alignment, rounded);
#if defined(__linux__)
    if (alignment == kHugePage) madvise(memory, rounded, MADV_HUGEPAGE);
    // Pages that are given back come again as zeros, each when it is first written.
    if (alignment >= kPage && madvise(memory, rounded, MADV_DONTNEED) == 0) return memory;
#endif
    std::memset(memory, 0, num_bytes);
    return memory;
}

}  // namespace encoder_engine
