// Threads are started when first needed and wait on a condition variable between tasks.
#include "common/thread_pool.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace encoder_engine {

struct thread_pool::state {
    const pid_t owner = getpid();
    std::mutex serving;  // held by the caller whose task is under way
    std::mutex mutex;    // guards the rest
    std::condition_variable wake, done;
    std::vector<std::thread> threads;
    const std::function<void(int)>* task = nullptr;
    uint64_t generation = 0;
    int wanted = 0;   // helpers the current task asked for
    int running = 0;  // of them, not yet finished
    bool stop = false;

    void loop(int index) {
        uint64_t seen = 0;
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return stop || generation != seen; });
            if (stop) return;
            seen = generation;
            if (index > wanted) continue;
            const std::function<void(int)>* mine = task;
            lock.unlock();
            (*mine)(index);
            lock.lock();
            if (--running == 0) done.notify_one();
        }
    }

    // Starts threads up to `count`, as far as the system allows; returns how many there are.
    int grow(int count) {
        try {
            while (static_cast<int>(threads.size()) < count) {
                const int index = static_cast<int>(threads.size()) + 1;
                threads.emplace_back([this, index] { loop(index); });
            }
        } catch (const std::system_error&) {
            // The task shares its work among those that did start.
        }
        return static_cast<int>(threads.size());
    }

    void serve(int num_threads, const std::function<void(int)>& work) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            const int available = grow(num_threads - 1);
            wanted = available < num_threads - 1 ? available : num_threads - 1;
            running = wanted;
            task = &work;
            ++generation;
        }
        wake.notify_all();
        work(0);
        std::unique_lock<std::mutex> lock(mutex);
        done.wait(lock, [&] { return running == 0; });
        task = nullptr;
    }
};

thread_pool::state* thread_pool::current() {
    state* known = state_.load();
    if (known != nullptr && known->owner == getpid()) return known;
    state* fresh = new state();
    if (state_.compare_exchange_strong(known, fresh)) return fresh;
    delete fresh;
    return known;
}

void thread_pool::run(int num_threads, const std::function<void(int)>& task) {
    if (num_threads > 1) {
        state* pool = current();
        const std::unique_lock<std::mutex> serving(pool->serving, std::try_to_lock);
        if (serving.owns_lock()) {
            pool->serve(num_threads, task);
            return;
        }
    }
    task(0);
}

thread_pool::~thread_pool() {
    state* pool = state_.load();
    if (pool == nullptr || pool->owner != getpid()) return;
    {
        const std::lock_guard<std::mutex> lock(pool->mutex);
        pool->stop = true;
    }
    pool->wake.notify_all();
    for (std::thread& thread : pool->threads) thread.join();
    delete pool;
}

}  // namespace encoder_engine
