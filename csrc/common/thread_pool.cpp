// Threads are started when first needed; between tasks they poll for a moment and then sleep.
//
// How it works: a task is published by one store to `ticket`, which holds the task's number and how
// many helpers it wants. A helper that is wanted is waited for: what it reads of the task stays until it
// has counted itself off `running`. Helpers that are not wanted read nothing else. Before a thread
// sleeps it announces that, then looks again, so that no wake-up is lost: both sides use sequentially
// consistent operations.
#include "common/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace encoder_engine {
namespace {

std::atomic<uint64_t> forks{0};
// When the library is loaded: every later fork is counted.
[[maybe_unused]] const int counts_forks = pthread_atfork(nullptr, nullptr, [] { ++forks; });

void pause_processor() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// Polls until `done` or the time is over; returns whether it is done.
template <typename Done>
bool poll(int microseconds, const Done& done) {
    if (done()) return true;
    if (microseconds == 0) return false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    do {
        for (int i = 0; i < 32; ++i) {
            pause_processor();
            if (done()) return true;
        }
    } while (std::chrono::steady_clock::now() < end);
    return false;
}

constexpr int kWantedBits = 16;
constexpr uint64_t kMostWanted = (uint64_t{1} << kWantedBits) - 1;

}  // namespace

uint64_t fork_count() { return forks.load(std::memory_order_relaxed); }

struct thread_pool::state {
    explicit state(int spin) : spin_microseconds(spin) {}

    const uint64_t owner = fork_count();
    const int spin_microseconds;
    std::mutex serving;  // held by the caller whose task is under way
    std::mutex mutex;    // of those who sleep
    std::condition_variable wake, done;
    std::vector<std::thread> threads;
    std::atomic<uint64_t> ticket{0};  // the task's number, and the helpers it wants in the low bits
    std::atomic<const std::function<void(int)>*> task{nullptr};
    std::atomic<int> running{0};  // wanted helpers that have not finished
    std::atomic<int> sleepers{0};
    std::atomic<bool> caller_sleeps{false};
    std::atomic<bool> stop{false};

    void loop(int index, uint64_t seen) {
        for (;;) {
            const auto called = [&] { return ticket.load() != seen || stop.load(); };
            if (!poll(spin_microseconds, called)) {
                ++sleepers;
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, called);
                --sleepers;
            }
            if (stop.load()) return;
            seen = ticket.load();
            if (static_cast<uint64_t>(index) > (seen & kMostWanted)) continue;
            (*task.load())(index);
            if (--running == 0 && caller_sleeps.load()) {
                { const std::lock_guard<std::mutex> lock(mutex); }
                done.notify_one();
            }
        }
    }

    // Starts threads up to `count`, as far as the system allows; returns how many there are.
    int grow(int count) {
        try {
            while (static_cast<int>(threads.size()) < count) {
                const int index = static_cast<int>(threads.size()) + 1;
                threads.emplace_back([this, index, seen = ticket.load()] { loop(index, seen); });
            }
        } catch (const std::system_error&) {
            // The task shares its work among those that did start.
        }
        return static_cast<int>(threads.size());
    }

    void serve(int num_threads, const std::function<void(int)>& work) {
        const int most = std::min(num_threads - 1, static_cast<int>(kMostWanted));
        const int wanted = std::min(grow(most), most);
        task = &work;
        running = wanted;
        const uint64_t number = (ticket.load() >> kWantedBits) + 1;
        ticket = number << kWantedBits | static_cast<uint64_t>(wanted);
        if (sleepers.load() > 0) {
            { const std::lock_guard<std::mutex> lock(mutex); }
            wake.notify_all();
        }
        work(0);
        const auto finished = [&] { return running.load() == 0; };
        if (poll(spin_microseconds, finished)) return;
        caller_sleeps = true;
        {
            std::unique_lock<std::mutex> lock(mutex);
            done.wait(lock, finished);
        }
        caller_sleeps = false;
    }
};

thread_pool::state* thread_pool::current() {
    state* known = state_.load();
    if (known != nullptr && known->owner == fork_count()) return known;
    state* fresh = new state(spin_microseconds_);
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
    if (pool == nullptr || pool->owner != fork_count()) return;
    pool->stop = true;
    { const std::lock_guard<std::mutex> lock(pool->mutex); }
    pool->wake.notify_all();
    for (std::thread& thread : pool->threads) thread.join();
    delete pool;
}

}  // namespace encoder_engine
