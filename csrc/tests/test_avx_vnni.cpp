// The dense layer in integers by AVX-VNNI, on processors without it too: there each of its instructions raises SIGILL,
// and the handler computes it. So the kernels that are tested are those that ship.
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/cpu_features.h"
#include "cpu/kernels.h"
#include "cpu/quantized_linear.h"
#include "tests/checks.h"

#if defined(__x86_64__) && defined(__linux__)
#include <csignal>
#include <ucontext.h>
#endif

namespace encoder_engine {

#if defined(__x86_64__) && defined(__linux__)
namespace {

volatile sig_atomic_t num_emulated = 0;

// A register of 32 bytes in the frame that the kernel keeps for a signal: its low half lies where FXSAVE has it, the
// high one where XSAVE has component 2.
struct kept_register {
    uint8_t *low, *high;
    void read(uint8_t (&to)[32]) const {
        std::memcpy(to, low, 16);
        std::memcpy(to + 16, high, 16);
    }
    void write(const uint8_t (&from)[32]) const {
        std::memcpy(low, from, 16);
        std::memcpy(high, from + 16, 16);
    }
};

// Computes VPDPBUSD of three registers of 256 bits in the VEX encoding, and steps over it; any other instruction ends
// the process as it would have without the handler.
void emulate(int, siginfo_t*, void* context) {
    mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
    const uint8_t* const code = reinterpret_cast<const uint8_t*>(machine.gregs[REG_RIP]);
    // C4, then R X B inverted and the map 0F38, then W = 0, a register inverted, L = 256 bits and the prefix 66.
    const bool known = code[0] == 0xC4 && (code[1] & 0x1F) == 2 && (code[2] & 0x87) == 0x05 && code[3] == 0x50 &&
                       code[4] >> 6 == 3;
    if (!known) {
        std::signal(SIGILL, SIG_DFL);
        return;
    }
    uint8_t* const state = reinterpret_cast<uint8_t*>(machine.fpregs);
    // The header follows FXSAVE's 512 bytes: halves of registers that were all zeros may not have been stored.
    uint64_t stored;
    std::memcpy(&stored, state + 512, sizeof stored);
    if ((stored & 2) == 0) std::memset(state + 160, 0, 256);
    if ((stored & 4) == 0) std::memset(state + 576, 0, 256);
    stored |= 6;
    std::memcpy(state + 512, &stored, sizeof stored);
    const auto register_of = [&](int number) {
        return kept_register{state + 160 + 16 * number, state + 576 + 16 * number};
    };
    const kept_register sums = register_of((code[4] >> 3 & 7) | (code[1] & 0x80 ? 0 : 8));
    uint8_t left[32], right[32], total[32];
    register_of(~code[2] >> 3 & 15).read(left);
    register_of((code[4] & 7) | (code[1] & 0x20 ? 0 : 8)).read(right);
    sums.read(total);
    for (int word = 0; word < 32; word += 4) {
        int32_t sum;
        std::memcpy(&sum, total + word, sizeof sum);
        for (int i = word; i < word + 4; ++i) sum += left[i] * static_cast<int8_t>(right[i]);
        std::memcpy(total + word, &sum, sizeof sum);
    }
    sums.write(total);
    machine.gregs[REG_RIP] += 5;
    num_emulated = num_emulated + 1;
}

bool has_level(instruction_set wanted) {
    for (const instruction_set level : supported_instruction_sets()) {
        if (level == wanted) return true;
    }
    return false;
}

// What quantized_linear() computes by the chosen level, by the kernel of AVX-VNNI, in one piece.
void run_avx_vnni(const quantized_linear_call& call) {
    const quantized_linear_kernel& kernel = avx_vnni_quantized_linear[static_cast<int>(call.type)];
    std::vector<char> scratch(kernel.scratch_bytes(call, call.num_rows) + 64);
    char* const aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
    kernel.run(call, {0, call.num_rows, 0, num_panels(call.width)}, aligned);
}

void check_against_avx2(std::mt19937& random, int64_t num_rows, int64_t depth, int64_t width, bool gated) {
    const int64_t features = gated ? 2 * width : width;
    std::vector<uint8_t> input(static_cast<size_t>(num_rows * depth));
    std::vector<int8_t> plain(static_cast<size_t>(features * depth));
    std::vector<int8_t> memory(static_cast<size_t>(panels_bytes(features, depth)) + 64);
    int8_t* const packed = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    // A fourth are the extremes, whose products would saturate sums of 16 bits.
    for (uint8_t& x : input) x = static_cast<uint8_t>(random() % 4 == 0 ? 255 : random() % 256);
    for (int8_t& x : plain) {
        x = static_cast<int8_t>(random() % 4 == 0 ? -128 : static_cast<int>(random() % 256) - 128);
    }
    pack_weight(plain.data(), features, depth, packed, 1);
    const std::vector<float> row_scales(static_cast<size_t>(num_rows), 0.01f);
    const std::vector<float> scales(static_cast<size_t>(features), 0.001f), bias(scales.size(), 2.0f);
    std::vector<float> output(static_cast<size_t>(num_rows * width), -1.0f), expected = output;
    std::vector<float> found_scales(row_scales.size()), expected_scales(row_scales.size());
    std::vector<uint8_t> bytes(output.size()), expected_bytes(output.size());
    quantized_linear_call call = {element_type::float32, gated ? activation::gelu : activation::none, input.data(),
                                  row_scales.data(), packed, scales.data(), bias.data(), output.data(), nullptr,
                                  nullptr, num_rows, depth, width, 1};
    call.gated = gated;
    run_avx_vnni(call);
    call.output = expected.data();
    quantized_linear(call);
    CHECK(output == expected);
    call.quantized = bytes.data();
    call.scales = found_scales.data();
    run_avx_vnni(call);
    call.quantized = expected_bytes.data();
    call.scales = expected_scales.data();
    quantized_linear(call);
    CHECK(bytes == expected_bytes && found_scales == expected_scales);
}

}  // namespace

void test_avx_vnni_has_the_bits_of_avx2() {
    if (!has_level(instruction_set::avx2)) return;
    const std::string before = instruction_set_name(chosen_instruction_set());
    CHECK(choose_instruction_set("avx2").empty());
    struct sigaction handler = {}, kept = {};
    handler.sa_sigaction = emulate;
    handler.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &handler, &kept);
    std::mt19937 random(8);
    for (const bool gated : {false, true}) {
        for (const int64_t num_rows : {1, 2, 5, 6, 7, 33}) check_against_avx2(random, num_rows, 230, 64, gated);
        // Sums go on after 4,096 bytes of the depth.
        check_against_avx2(random, 7, 4200, 64, gated);
    }
    check_against_avx2(random, 13, 37, 21, false);
    check_against_avx2(random, 13, 640, 300, false);
    sigaction(SIGILL, &kept, nullptr);
    CHECK(has_level(instruction_set::avx_vnni) || num_emulated > 0);
    CHECK(choose_instruction_set(before.c_str()).empty());
}
#else
void test_avx_vnni_has_the_bits_of_avx2() {}
#endif

}  // namespace encoder_engine
