// The SIMD level that runs: the processor's, limited by ENCODER_ENGINE_ISA.
#pragma once

#include <string>
#include <vector>

namespace encoder_engine {

// In rising order; each level includes the ones before it. Off x86-64 there is only portable.
enum class instruction_set { portable, avx2, avx512, avx512_bf16, amx };

// The level's name: "portable", "avx2" (with FMA, BMI2), "avx512" (F, BW, DQ, VL, VBMI, VBMI2, VNNI),
// "avx512_bf16" or "amx" (AMX-INT8, AMX-BF16).
const char* instruction_set_name(instruction_set level);

// What this processor and operating system can run, rising.
std::vector<instruction_set> supported_instruction_sets();

// Chooses the level once, when the module loads: the fastest supported, or the one `request` names.
// Returns an empty string, or why the request cannot be met.
std::string choose_instruction_set(const char* request);

// Whether the processor is AMD's.
bool is_amd();

// The chosen level.
instruction_set chosen_instruction_set();

}  // namespace encoder_engine
