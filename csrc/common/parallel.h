// Runs a task on several threads: on those the process already computes with, where it has some.
#pragma once

#include <cstdint>
#include <functional>

namespace encoder_engine {

// All of `most` threads where two or more are `worth` calling, else this one alone: GCC's OpenMP runtime
// ends the threads that a smaller team can do without, and starts others for the next.
inline int team_size(int64_t worth, int most) { return worth > 1 && most > 1 ? most : 1; }

// Calls task() on `num_threads` threads, this one among them, and returns when all have returned.
// The threads are those of the OpenMP runtime that the process has loaded, so that two pools never
// compete for the cores; without one, or in a forked child, a pool of our own. Fewer calls may be
// made, never none: tasks share their work by themselves.
void run_parallel(int num_threads, const std::function<void()>& task);

}  // namespace encoder_engine
