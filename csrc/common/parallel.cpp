// Finds the process's OpenMP runtime by name, once: nothing is linked against it.
#include "common/parallel.h"

#include <dlfcn.h>
#include <unistd.h>

#include "common/thread_pool.h"

namespace encoder_engine {
namespace {

// The entry point of `#pragma omp parallel` in GCC; LLVM's and Intel's runtimes have it too.
using omp_parallel = void (*)(void (*body)(void*), void* data, unsigned num_threads, unsigned flags);

omp_parallel find_omp_parallel() {
    return reinterpret_cast<omp_parallel>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
}

// The process that loaded the extension: OpenMP threads do not survive a fork, and some runtimes then
// wait for them forever.
const pid_t owner = getpid();

void call(void* task) { (*static_cast<const std::function<void()>*>(task))(); }

}  // namespace

void run_parallel(int num_threads, const std::function<void()>& task) {
    if (num_threads <= 1) {
        task();
        return;
    }
    static const omp_parallel shared = find_omp_parallel();
    if (shared != nullptr && getpid() == owner) {
        shared(call, const_cast<std::function<void()>*>(&task),
               static_cast<unsigned>(num_threads), 0);
        return;
    }
    static thread_pool pool;
    pool.run(num_threads, [&](int) { task(); });
}

}  // namespace encoder_engine
