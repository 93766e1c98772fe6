// Runs a task on several threads: on those the process already computes with, where it has some.
#pragma once

#include <cstdint>
#include <functional>

namespace encoder_engine {

// How many of `most` threads to call where so many would be worth it: all, or this one alone. OpenMP
// runtimes end the threads that a smaller team can do without, and start them again for the next.
inline int team_size(int64_t worth, int most) { return worth > 1 && most > 1 ? most : 1; }

// Calls task() on `num_threads` threads, this one among them, and returns when all have returned.
// The threads are those of the OpenMP runtime that the process has loaded, so that two pools never
// compete for the cores; without one, or in a forked child, a pool of our own. Fewer calls may be
// made, never none: tasks share their work by themselves.
void run_parallel(int num_threads, const std::function<void()>& task);

}  // namespace encoder_engine
