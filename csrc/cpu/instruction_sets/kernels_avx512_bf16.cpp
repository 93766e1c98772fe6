// The kernels for AVX-512 with products of bfloat16; CMakeLists.txt compiles this file for it.
#if defined(__x86_64__)
#define EE_ISA isa_avx512_bf16
#include "cpu/instruction_sets/kernel_table.h"
#include "cpu/instruction_sets/training_table.h"

namespace encoder_engine {

const kernel_table avx512_bf16_kernels = EE_ISA::kKernels;
const training_table avx512_bf16_training_kernels = EE_ISA::kTrainingKernels;

}  // namespace encoder_engine
#endif
