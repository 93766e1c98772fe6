// Threads are started when first needed; between tasks they poll for a moment and then sleep.
//
// How it works: a task is published by one store to `ticket`, which holds the task's number and how
// many helpers may still join. A helper joins by taking one off; what it then reads of the task stays
// until it has counted itself as finished. When the caller's own call returns, all work is taken: it
// bars helpers that have not joined, which a busy machine may not have woken yet, and waits for the
// others. Before a thread sleeps it announces that, then looks again, so that no wake-up is lost: both
// sides use sequentially consistent operations.
#include "common/thread_pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

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

// The processor that the calling thread runs on, or -1 where that is not known.
int current_cpu() {
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

// Moves the calling thread to another of its processors if it runs on `cpu`. Linux may wake a thread
// on the processor of the one that wakes it, and leave it there for some milliseconds though another
// is idle: both then share one, and a short task takes as long as on one thread.
void leave_cpu([[maybe_unused]] int cpu) {
#if defined(__linux__)
    if (cpu < 0 || sched_getcpu() != cpu) return;
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
    cpu_set_t others = allowed;
    CPU_CLR(cpu, &others);
    if (sched_setaffinity(0, sizeof others, &others) == 0) {
        sched_setaffinity(0, sizeof allowed, &allowed);
    }
#endif
}

constexpr int kPlaceBits = 16;
constexpr uint64_t kMostPlaces = (uint64_t{1} << kPlaceBits) - 1;

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
    std::atomic<uint64_t> ticket{0};  // the task's number, and the places for helpers in the low bits
    std::atomic<const std::function<void(int)>*> task{nullptr};
    std::atomic<int> places{0};    // for helpers, when the task was published
    std::atomic<int> finished{0};  // helpers that joined and returned
    std::atomic<int> sleepers{0};
    std::atomic<int> caller_cpu{-1};  // where the caller ran when it woke the sleepers
    std::atomic<bool> caller_sleeps{false};
    std::atomic<bool> stop{false};

    // `seen`: the number of the last task that the thread has looked at.
    void loop(uint64_t seen) {
        for (;;) {
            const auto called = [&] { return ticket.load() >> kPlaceBits != seen || stop.load(); };
            if (!poll(spin_microseconds, called)) {
                ++sleepers;
                std::unique_lock<std::mutex> lock(mutex);
                wake.wait(lock, called);
                --sleepers;
                lock.unlock();
                leave_cpu(caller_cpu.load());
            }
            if (stop.load()) return;
            uint64_t now = ticket.load();
            while ((now & kMostPlaces) > 0 && !ticket.compare_exchange_weak(now, now - 1)) {
            }
            seen = now >> kPlaceBits;
            const int left = static_cast<int>(now & kMostPlaces);
            if (left == 0) continue;
            (*task.load())(places.load() - left + 1);
            ++finished;
            if (caller_sleeps.load()) {
                { const std::lock_guard<std::mutex> lock(mutex); }
                done.notify_one();
            }
        }
    }

    // Starts threads up to `count`, as far as the system allows; returns how many there are.
    int grow(int count) {
        try {
            while (static_cast<int>(threads.size()) < count) {
                threads.emplace_back([this, seen = ticket.load() >> kPlaceBits] { loop(seen); });
            }
        } catch (const std::system_error&) {
            // The task shares its work among those that did start.
        }
        return static_cast<int>(threads.size());
    }

    void serve(int num_threads, const std::function<void(int)>& work) {
        const int most = std::min(num_threads - 1, static_cast<int>(kMostPlaces));
        const int wanted = std::min(grow(most), most);
        task = &work;
        places = wanted;
        finished = 0;
        const uint64_t number = (ticket.load() >> kPlaceBits) + 1;
        ticket = number << kPlaceBits | static_cast<uint64_t>(wanted);
        if (sleepers.load() > 0) {
            caller_cpu = current_cpu();
            { const std::lock_guard<std::mutex> lock(mutex); }
            wake.notify_all();
        }
        work(0);
        const uint64_t last = ticket.exchange(number << kPlaceBits);
        const int joined = wanted - static_cast<int>(last & kMostPlaces);
        const auto complete = [&] { return finished.load() == joined; };
        if (poll(spin_microseconds, complete)) return;
        caller_sleeps = true;
        {
            std::unique_lock<std::mutex> lock(mutex);
            done.wait(lock, complete);
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
