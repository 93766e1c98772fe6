// Runs a task on several threads: on those the process already computes with, where it has some.
#pragma once

#include <functional>

namespace encoder_engine {

// Calls task() on `num_threads` threads, this one among them, and returns when all have returned.
// The threads are those of the OpenMP runtime that the process has loaded, so that two pools never
// compete for the cores; without one, or in a forked child, a pool of our own. Fewer calls may be
// made, never none: tasks share their work by themselves.
void run_parallel(int num_threads, const std::function<void()>& task);

}  // namespace encoder_engine
