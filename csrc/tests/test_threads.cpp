// The pool of threads: many callers, sleeping threads, forks; and the limits of control groups.
#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/cpu_count.h"
#include "common/parallel.h"
#include "common/thread_pool.h"
#include "tests/checks.h"

namespace encoder_engine {
namespace {

// Counts to `count` in shared pieces; returns what was counted.
int64_t count_together(thread_pool& pool, int num_threads, int64_t count) {
    std::atomic<int64_t> next{0}, sum{0};
    std::vector<int64_t> own(static_cast<size_t>(num_threads) + 1, 0);
    pool.run(num_threads, [&](int index) {
        int64_t found = 0;
        while (next.fetch_add(1) < count) ++found;
        own[static_cast<size_t>(index)] += found;
    });
    for (const int64_t part : own) sum += part;
    return sum;
}

void write_file(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << content;
}

}  // namespace

void test_many_callers_share_a_pool() {
    for (const int spin : {0, 50}) {
        thread_pool pool(spin);
        std::vector<std::thread> callers;
        std::atomic<int> wrong{0};
        for (int i = 0; i < 16; ++i) {
            callers.emplace_back([&, i] {
                for (int round = 0; round < 50; ++round) {
                    const int64_t count = (7 * i + round) % 40;
                    wrong += count_together(pool, 1 + (i + round) % 5, count) != count;
                    // Longer than a thread polls, now and then: it sleeps, and must wake again.
                    if (round % 16 == i) std::this_thread::sleep_for(std::chrono::microseconds(300));
                }
            });
        }
        for (std::thread& caller : callers) caller.join();
        CHECK(wrong == 0);
    }
}

void test_a_forked_child_has_threads_of_its_own() {
#if !defined(_WIN32)
    thread_pool pool(50);
    CHECK(count_together(pool, 3, 1000) == 1000);
    const uint64_t forks = fork_count();
    const pid_t child = fork();
    if (child == 0) {
        bool right = fork_count() == forks + 1;
        for (int round = 0; round < 20; ++round) right &= count_together(pool, 3, 1000) == 1000;
        std::atomic<int> calls{0};
        run_parallel(3, [&] { ++calls; });
        _exit(right && calls > 0 ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(count_together(pool, 3, 1000) == 1000);
#endif
}

void test_quotas_of_control_groups() {
    const std::string name = "encoder_engine_quota_" + std::to_string(std::random_device()());
    const std::string root = (std::filesystem::temp_directory_path() / name).string();
    CHECK(cpu_quota(root) == 0.0);
    write_file(root + "/proc/self/cgroup", "0::/outer/inner\n");
    CHECK(cpu_quota(root) == 0.0);
    write_file(root + "/sys/fs/cgroup/outer/inner/cpu.max", "max 100000\n");
    CHECK(cpu_quota(root) == 0.0);
    write_file(root + "/sys/fs/cgroup/outer/cpu.max", "250000 100000\n");
    CHECK(cpu_quota(root) == 2.5);
    write_file(root + "/sys/fs/cgroup/outer/inner/cpu.max", "100000 100000\n");
    CHECK(cpu_quota(root) == 1.0);
    write_file(root + "/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/1\n0::/\n");
    CHECK(cpu_quota(root) == 0.0);
    // A container sees its own group at the mount, whatever its path outside is.
    write_file(root + "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    write_file(root + "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    CHECK(cpu_quota(root) == 0.0);
    write_file(root + "/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "350000\n");
    CHECK(cpu_quota(root) == 3.5);
    std::filesystem::remove_all(root);
    CHECK(default_threads() >= 1);
    CHECK(num_usable_cpus() >= 1);
    CHECK(num_usable_cpus() <= num_allowed_cpus());
    CHECK(thread_limit("3", 1.5) == 3);
    CHECK(thread_limit("none", 1.5) == 1);
    CHECK(thread_limit(nullptr, 0.5) == 1);
    CHECK(thread_limit(nullptr, 2.5) == 2);
    CHECK(thread_limit(nullptr, 0.0) > 64);
}

}  // namespace encoder_engine
