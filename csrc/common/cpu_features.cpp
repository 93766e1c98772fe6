// Reads the processor's features: on x86-64 from CPUID, because compilers know only some of them by name, on
// arm64 from the operating system.
#include "common/cpu_features.h"

#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__aarch64__) && defined(_WIN32)
#include <windows.h>
#endif

namespace encoder_engine {
namespace {

instruction_set chosen = instruction_set::portable;

[[maybe_unused]] bool has_bits(uint64_t value, std::initializer_list<int> bits) {
    for (const int bit : bits) {
        if ((value >> bit & 1) == 0) return false;
    }
    return true;
}

#if defined(__x86_64__)
struct registers {
    uint32_t a = 0, b = 0, c = 0, d = 0;
};

registers read_cpuid(uint32_t leaf, uint32_t subleaf = 0) {
    registers out;
    if (__get_cpuid_count(leaf, subleaf, &out.a, &out.b, &out.c, &out.d) == 0) return {};
    return out;
}

// The registers that the operating system keeps for a process: XCR0. Nothing without OSXSAVE.
uint64_t kept_registers() {
    if (!has_bits(read_cpuid(1).c, {27})) return 0;
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return uint64_t{high} << 32 | low;
}

// CMPXCHG16B, LAHF, POPCNT, SSE3, SSSE3, SSE4.1 and SSE4.2.
bool has_x86_64_v2() {
    return has_bits(read_cpuid(1).c, {0, 9, 13, 19, 20, 23}) && has_bits(read_cpuid(0x80000001).c, {0});
}

// AVX2, FMA, BMI and BMI2.
bool has_avx2() {
    return has_bits(kept_registers(), {1, 2}) && has_bits(read_cpuid(1).c, {12, 28}) &&
           has_bits(read_cpuid(7).b, {3, 5, 8});
}

bool has_avx_vnni() { return has_avx2() && has_bits(read_cpuid(7, 1).a, {4}); }

// AVX-512 F, DQ, BW and VL, then VBMI, VBMI2 and VNNI.
bool has_avx512() {
    return has_avx2() && has_bits(kept_registers(), {5, 6, 7}) &&
           has_bits(read_cpuid(7).b, {16, 17, 30, 31}) && has_bits(read_cpuid(7).c, {1, 6, 11});
}

bool has_avx512_bf16() { return has_avx512() && has_bits(read_cpuid(7, 1).a, {5}); }

// Linux gives a process the registers of AMX when it asks for them, once for all of its threads.
bool has_amx() {
#if defined(__linux__)
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return has_bits(read_cpuid(7).d, {22, 24, 25}) && has_bits(kept_registers(), {17, 18}) &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
}
#endif

#if defined(__aarch64__)
// Every processor of arm64 has NEON.
struct arm_features {
    bool dotprod = false, i8mm = false, bf16 = false;
};

arm_features read_arm_features() {
    arm_features out;
#if defined(__linux__)
    // By their bits: headers before glibc 2.33 do not name them all.
    const uint64_t words[] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
    out.dotprod = has_bits(words[0], {20});
    out.i8mm = has_bits(words[1], {13});
    out.bf16 = has_bits(words[1], {14});
#elif defined(__APPLE__)
    const auto has = [](const char* name) {
        int value = 0;
        size_t size = sizeof(value);
        return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
    };
    out.dotprod = has("hw.optional.arm.FEAT_DotProd");
    out.i8mm = has("hw.optional.arm.FEAT_I8MM");
    out.bf16 = has("hw.optional.arm.FEAT_BF16");
#elif defined(_WIN32)
    // By their numbers: headers before Windows SDK 26100 name only the first.
    out.dotprod = IsProcessorFeaturePresent(43) != 0;
    out.i8mm = IsProcessorFeaturePresent(66) != 0;
    out.bf16 = IsProcessorFeaturePresent(68) != 0;
#endif
    return out;
}
#endif

// CMakeLists.txt says whether the kernels were compiled for the levels of the processor.
#if defined(ENCODER_ENGINE_LEVELS)
constexpr bool kHasLevels = true;
#else
constexpr bool kHasLevels = false;
#endif

std::vector<instruction_set> levels_of_processor() {
    std::vector<instruction_set> out{instruction_set::portable};
#if defined(__x86_64__)
    if (has_avx2()) out.push_back(instruction_set::avx2);
    if (has_avx_vnni()) out.push_back(instruction_set::avx_vnni);
    if (has_avx512()) out.push_back(instruction_set::avx512);
    if (has_avx512_bf16()) {
        out.push_back(instruction_set::avx512_bf16);
        if (has_amx()) out.push_back(instruction_set::amx);
    }
#elif defined(__aarch64__)
    const arm_features has = read_arm_features();
    out.push_back(instruction_set::neon);
    if (has.dotprod) out.push_back(instruction_set::dotprod);
    if (has.dotprod && has.i8mm && has.bf16) out.push_back(instruction_set::bf16);
#endif
    return out;
}

}  // namespace

const char* instruction_set_name(instruction_set level) {
    switch (level) {
        case instruction_set::portable: return "portable";
        case instruction_set::avx2: return "avx2";
        case instruction_set::avx_vnni: return "avx_vnni";
        case instruction_set::avx512: return "avx512";
        case instruction_set::avx512_bf16: return "avx512_bf16";
        case instruction_set::amx: return "amx";
        case instruction_set::neon: return "neon";
        case instruction_set::dotprod: return "dotprod";
        case instruction_set::bf16: return "bf16";
    }
    return "portable";
}

std::vector<instruction_set> supported_instruction_sets() {
    return kHasLevels ? levels_of_processor() : std::vector<instruction_set>{instruction_set::portable};
}

std::vector<instruction_set> missing_instruction_sets() {
    if (kHasLevels) return {};
    const std::vector<instruction_set> all = levels_of_processor();
    return {all.begin() + 1, all.end()};
}

std::string refuse_processor() {
#if defined(__x86_64__)
    if (!has_x86_64_v2()) {
        return "this processor is below x86-64-v2 (SSE4.2 and POPCNT, in processors since 2009), which encoder-engine "
               "needs; use a newer machine, or check what the virtual machine passes through";
    }
#endif
    return {};
}

std::string choose_instruction_set(const char* request) {
    const std::vector<instruction_set> supported = supported_instruction_sets();
    chosen = supported.back();
    // On Intel's processors a vector product of bfloat16 takes four times as long as one of float32, which
    // has half as many elements: 105 against 210 GFLOP/s on a core of Emerald Rapids.
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
    const registers maker = read_cpuid(0);
    char name[12];
    std::memcpy(name, &maker.b, 4);
    std::memcpy(name + 4, &maker.d, 4);
    std::memcpy(name + 8, &maker.c, 4);
    return std::memcmp(name, "AuthenticAMD", sizeof name) == 0;
#else
    return false;
#endif
}

instruction_set chosen_instruction_set() { return chosen; }

}  // namespace encoder_engine
