// Finds the process's OpenMP runtime by name, whenever libraries were loaded: nothing is linked
// against it.
#include "common/parallel.h"

#if !defined(_WIN32)
#include <dlfcn.h>
#endif
#if defined(__linux__)
#include <link.h>
#endif

#include <atomic>

#include "common/thread_pool.h"

namespace encoder_engine {
namespace {

// The entry point of `#pragma omp parallel` in GCC; LLVM's and Intel's runtimes have it too.
using omp_parallel = void (*)(void (*body)(void*), void* data, unsigned num_threads, unsigned flags);

// How many libraries the process has loaded so far, and 1: a twentieth of the time of a look-up.
uint64_t num_loaded() {
    uint64_t count = 0;
#if defined(__linux__)
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* found) {
            *static_cast<uint64_t*>(found) = info->dlpi_adds;
            return 1;
        },
        &count);
#endif
    return count + 1;
}

// PyTorch, which brings a runtime, may be imported after the first call.
omp_parallel find_omp_parallel() {
    static std::atomic<uint64_t> seen{0};
    static std::atomic<omp_parallel> found{nullptr};
    const omp_parallel known = found.load();
    if (known != nullptr) return known;
    const uint64_t now = num_loaded();
    if (seen.load() == now) return nullptr;
#if defined(_WIN32)
    const omp_parallel fresh = nullptr;  // the runtimes of PyTorch there do not have it
#else
    const auto fresh = reinterpret_cast<omp_parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
#endif
    found = fresh;
    seen = now;
    return fresh;
}

// Between the steps of a model the threads of a team poll: sleeping would take as long as a step.
constexpr int kSpinMicroseconds = 50;

void call(void* task) { (*static_cast<const std::function<void()>*>(task))(); }

}  // namespace

void run_parallel(int num_threads, const std::function<void()>& task) {
    if (num_threads <= 1) {
        task();
        return;
    }
    // OpenMP threads do not survive a fork, and some runtimes then wait for them forever.
    const omp_parallel shared = fork_count() == 0 ? find_omp_parallel() : nullptr;
    if (shared != nullptr) {
        shared(call, const_cast<std::function<void()>*>(&task),
               static_cast<unsigned>(num_threads), 0);
        return;
    }
    static thread_pool pool(kSpinMicroseconds);
    pool.run(num_threads, [&](int) { task(); });
}

}  // namespace encoder_engine
