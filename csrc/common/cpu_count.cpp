// Reads affinity, the topology of cores, and quotas of control groups.
#include "common/cpu_count.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace encoder_engine {
namespace {

constexpr int kMostThreads = 1024;

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// The numbers of the CPUs that the process may run on; none where the system does not say.
std::vector<int> allowed_cpus() {
    std::vector<int> cpus;
#if defined(__linux__)
    for (int most = 1024; most <= 1 << 20; most *= 4) {
        const size_t size = CPU_ALLOC_SIZE(most);
        std::vector<unsigned long> words(size / sizeof(unsigned long));
        cpu_set_t* const set = reinterpret_cast<cpu_set_t*>(words.data());
        if (sched_getaffinity(0, size, set) != 0) continue;
        for (int cpu = 0; cpu < most; ++cpu) {
            if (CPU_ISSET_S(cpu, size, set)) cpus.push_back(cpu);
        }
        break;
    }
#endif
    return cpus;
}

int num_cores() {
    const std::vector<int> cpus = allowed_cpus();
    if (cpus.empty()) return static_cast<int>(std::thread::hardware_concurrency());
    std::set<std::string> cores;
    for (const int cpu : cpus) {
        const std::string name = std::to_string(cpu);
        const std::string siblings =
            first_line("/sys/devices/system/cpu/cpu" + name + "/topology/thread_siblings_list");
        cores.insert(siblings.empty() ? name : siblings);
    }
    return static_cast<int>(cores.size());
}

// CPUs' worth of time in cpu.max or in cpu.cfs_quota_us and cpu.cfs_period_us; 0: no limit.
double quota_of(const std::string& folder) {
    std::istringstream both(first_line(folder + "/cpu.max"));
    double quota = 0.0, period = 0.0;
    if (both >> quota >> period && period > 0.0) return quota / period;
    std::istringstream first(first_line(folder + "/cpu.cfs_quota_us"));
    std::istringstream second(first_line(folder + "/cpu.cfs_period_us"));
    if (first >> quota && second >> period && quota > 0.0 && period > 0.0) return quota / period;
    return 0.0;
}

// The least quota of a control group and of those around it, each of which limits it.
double quota_on_path(const std::string& mount, std::string path) {
    double least = 0.0;
    for (;;) {
        const double quota = quota_of(mount + path);
        if (quota > 0.0 && (least == 0.0 || quota < least)) least = quota;
        if (path.empty()) return least;
        path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
    }
}

}  // namespace

int num_allowed_cpus() {
    const std::vector<int> cpus = allowed_cpus();
    const int count = cpus.empty() ? static_cast<int>(std::thread::hardware_concurrency())
                                   : static_cast<int>(cpus.size());
    return std::clamp(count, 1, kMostThreads);
}

double cpu_quota(const std::string& root) {
    const std::string mount = root + "/sys/fs/cgroup";
    double least = 0.0;
    std::ifstream groups(root + "/proc/self/cgroup");
    // Lines are number:controllers:path; version 2 has number 0 and no controllers.
    for (std::string line; std::getline(groups, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        std::string path = line.substr(second + 1);
        if (path == "/") path.clear();
        std::vector<std::string> mounts;
        if (controllers.empty()) {
            mounts = {mount, mount + "/unified"};
        } else if ((',' + controllers + ',').find(",cpu,") != std::string::npos) {
            mounts = {mount + "/" + controllers, mount + "/cpu"};
        }
        for (const std::string& one : mounts) {
            const double quota = quota_on_path(one, path);
            if (quota > 0.0 && (least == 0.0 || quota < least)) least = quota;
        }
    }
    return least;
}

int thread_limit(const char* requested, double quota) {
    const int named = requested == nullptr ? 0 : std::atoi(requested);
    if (named > 0) return std::min(named, kMostThreads);
    return quota > 0.0 ? std::clamp(static_cast<int>(quota), 1, kMostThreads) : kMostThreads;
}

int num_usable_cpus() {
    static const int limit = thread_limit(std::getenv("OMP_NUM_THREADS"), cpu_quota(""));
    return std::min(num_allowed_cpus(), limit);
}

int default_threads() {
    const char* const requested = std::getenv("OMP_NUM_THREADS");
    const int limit = thread_limit(requested, cpu_quota(""));
    const bool named = requested != nullptr && std::atoi(requested) > 0;
    return named ? limit : std::clamp(num_cores(), 1, limit);
}

}  // namespace encoder_engine
