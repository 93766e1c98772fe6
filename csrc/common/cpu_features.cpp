// Reads the processor's features through the compiler's built-ins.
#include "common/cpu_features.h"

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace encoder_engine {
namespace {

instruction_set chosen = instruction_set::portable;

#if defined(__x86_64__)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("avx512vnni");
}

// Linux gives a process the registers of AMX when it asks for them, once for all of its threads.
bool has_amx() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-int8") &&
           __builtin_cpu_supports("amx-bf16") &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}
#endif

}  // namespace

const char* instruction_set_name(instruction_set level) {
    switch (level) {
        case instruction_set::portable: return "portable";
        case instruction_set::avx2: return "avx2";
        case instruction_set::avx512: return "avx512";
        case instruction_set::avx512_bf16: return "avx512_bf16";
        case instruction_set::amx: return "amx";
    }
    return "portable";
}

std::vector<instruction_set> supported_instruction_sets() {
    std::vector<instruction_set> out{instruction_set::portable};
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (has_avx2()) out.push_back(instruction_set::avx2);
    if (has_avx512()) out.push_back(instruction_set::avx512);
    if (has_avx512() && __builtin_cpu_supports("avx512bf16")) {
        out.push_back(instruction_set::avx512_bf16);
        if (has_amx()) out.push_back(instruction_set::amx);
    }
#endif
    return out;
}

std::string choose_instruction_set(const char* request) {
    const std::vector<instruction_set> supported = supported_instruction_sets();
    chosen = supported.back();
    // Intel's processors take four times as long for a vector of products of bfloat16 as for one of
    // float32, which holds half as many: 105 for 210 GFLOP/s on a core of Emerald Rapids.
    if (chosen == instruction_set::avx512_bf16 && !is_amd()) chosen = instruction_set::avx512;
    if (request == nullptr || *request == '\0') return {};
    std::string names;
    for (const instruction_set level : supported) {
        if (request == std::string(instruction_set_name(level))) {
            chosen = level;
            return {};
        }
        names += (names.empty() ? "" : ", ") + std::string(instruction_set_name(level));
    }
    return "ENCODER_ENGINE_ISA is '" + std::string(request) + "'; this processor runs: " + names;
}

bool is_amd() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    return __builtin_cpu_is("amd");
#else
    return false;
#endif
}

instruction_set chosen_instruction_set() { return chosen; }

}  // namespace encoder_engine
