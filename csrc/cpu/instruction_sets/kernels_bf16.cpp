// The kernels for NEON with products of bfloat16, and of matrices of bytes (I8MM); CMakeLists.txt compiles this file for it.
#if defined(__aarch64__)
#define EE_ISA isa_bf16
#define EE_NEON
#include "cpu/instruction_sets/kernel_table.h"
#include "cpu/instruction_sets/training_table.h"

namespace encoder_engine {

const kernel_table bf16_kernels = EE_ISA::kKernels;
const training_table bf16_training_kernels = EE_ISA::kTrainingKernels;

}  // namespace encoder_engine
#endif
