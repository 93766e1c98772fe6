// One growing allocation for each thread that calls kernels.
#include "cpu/training/shared_scratch.h"

#include <memory>
#include <new>

namespace encoder_engine {
namespace {

constexpr std::align_val_t kAlignment{64};

struct freed {
    void operator()(void* memory) const { ::operator delete(memory, kAlignment); }
};

}  // namespace

void* shared_scratch(size_t bytes) {
    static thread_local std::unique_ptr<void, freed> memory;
    static thread_local size_t capacity = 0;
    if (bytes > capacity) {
        memory.reset();
        capacity = 0;
        memory.reset(::operator new(bytes, kAlignment));
        capacity = bytes;
    }
    return memory.get();
}

}  // namespace encoder_engine
