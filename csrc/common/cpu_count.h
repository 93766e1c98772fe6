// How many threads this process may keep busy.
#pragma once

#include <string>

namespace encoder_engine {

// The number that OMP_NUM_THREADS names, else the cores that the process may run on, within the CPU
// quota of its control groups (cgroup v1 and v2), rounded down; at least 1. Threads of one core count
// once: matrix products leave no unit idle for a second one.
int default_threads();

// The CPUs that the process may run on, at least 1; reads no file.
int num_allowed_cpus();

// The former, but no more than OMP_NUM_THREADS names or than the CPU quota of the first call allows.
int num_usable_cpus();

// The most threads that the value of OMP_NUM_THREADS, which may be null, and a quota allow.
int thread_limit(const char* requested, double quota);

// The CPUs' worth of time that control groups allow, 0 without a limit. `root`: of the file system.
double cpu_quota(const std::string& root);

}  // namespace encoder_engine
