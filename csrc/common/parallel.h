// Runs a task on several threads, by the OpenMP runtime that the process has loaded, if any.
#pragma once

#include <cstdint>
#include <functional>

namespace encoder_engine {

// Returns the size of a team of threads: `most` where at least two threads are `worth` calling,
// else 1. A team is never in between: GCC's OpenMP runtime ends the threads that a smaller team
// does not need, and starts new ones for the next team.
inline int team_size(int64_t worth, int most) { return worth > 1 && most > 1 ? most : 1; }

// Calls task() on `num_threads` threads, this one among them, and returns when all have returned.
// The threads are those of the OpenMP runtime that the process has loaded, so that two pools do not
// compete for the cores; without one, or in a forked child, an own pool. Fewer calls may be made, at
// least one: tasks take work from a shared counter.
void run_parallel(int num_threads, const std::function<void()>& task);

}  // namespace encoder_engine
