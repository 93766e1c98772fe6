// The SIMD level that runs: the processor's, limited by ENCODER_ENGINE_ISA.
#pragma once

#include <string>
#include <vector>

namespace encoder_engine {

// In rising order, after portable those of x86-64, then those of arm64; each level includes the ones of its
// architecture before it, but no AVX-512 includes avx_vnni. Other processors have only portable.
enum class instruction_set { portable, avx2, avx_vnni, avx512, avx512_bf16, amx, neon, dotprod, bf16 };

// The level's name: "portable", "avx2" (with FMA, BMI2), "avx_vnni" (products of bytes), "avx512" (F, BW, DQ, VL,
// VBMI, VBMI2, VNNI), "avx512_bf16", "amx" (AMX-INT8, AMX-BF16); "neon", "dotprod" (products of bytes), "bf16" (with
// I8MM: products of bfloat16, and of matrices of bytes).
const char* instruction_set_name(instruction_set level);

// What this processor, operating system and build can run, rising.
std::vector<instruction_set> supported_instruction_sets();

// What this processor and operating system could run, and the build lacks.
std::vector<instruction_set> missing_instruction_sets();

// Why nothing runs on this processor: it is below x86-64-v2, of 2009. Empty where it is not.
std::string refuse_processor();

// Chooses the level once, when the module loads: the fastest supported, or the one `request` names.
// Returns an empty string, or why the request cannot be met.
std::string choose_instruction_set(const char* request);

// Whether the processor is AMD's.
bool is_amd();

// The chosen level.
instruction_set chosen_instruction_set();

}  // namespace encoder_engine
