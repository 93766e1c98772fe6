// A pool of waiting threads that run one task at a time; safe across fork.
#pragma once

#include <atomic>
#include <functional>

namespace encoder_engine {

class thread_pool {
public:
    thread_pool() = default;
    thread_pool(const thread_pool&) = delete;
    thread_pool& operator=(const thread_pool&) = delete;
    ~thread_pool();

    // Calls task(0) here and task(1) ... task(num_threads - 1) on other threads, and returns when
    // all have. Tasks must share their work by themselves: when the pool is serving another caller,
    // or threads cannot be had, fewer of the calls are made, but always task(0).
    void run(int num_threads, const std::function<void(int)>& task);

private:
    struct state;
    state* current();

    // Not shared across fork: a child cannot join its parent's threads, and starts its own.
    std::atomic<state*> state_{nullptr};
};

}  // namespace encoder_engine
