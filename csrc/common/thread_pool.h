// A pool of waiting threads that run one task at a time; safe across fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace encoder_engine {

// How often this process has been forked since the extension was loaded, counted in the child.
uint64_t fork_count();

class thread_pool {
public:
    // `spin_microseconds`: how long a thread polls for the next task, and the caller for the end of
    // its own, before either sleeps. A sleeping thread takes some 50 microseconds to wake.
    explicit thread_pool(int spin_microseconds = 0) : spin_microseconds_(spin_microseconds) {}
    thread_pool(const thread_pool&) = delete;
    thread_pool& operator=(const thread_pool&) = delete;
    ~thread_pool();

    // Calls task(0) here and task(1) ... task(num_threads - 1) on other threads, and returns when
    // all have. Tasks must share their work by themselves: when the pool is serving another caller,
    // or threads cannot be had before task(0) returns, fewer of the calls are made, but always task(0).
    void run(int num_threads, const std::function<void(int)>& task);

private:
    struct state;
    state* current();

    const int spin_microseconds_;
    // Not shared across fork: a child cannot join its parent's threads, and starts its own.
    std::atomic<state*> state_{nullptr};
};

}  // namespace encoder_engine
