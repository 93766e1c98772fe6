// The kernels for AVX2; CMakeLists.txt compiles this file for it.
#if defined(__x86_64__)
#define EE_ISA isa_avx2
#include "cpu/instruction_sets/kernel_table.h"
#include "cpu/instruction_sets/training_table.h"

namespace encoder_engine {

const kernel_table avx2_kernels = EE_ISA::kKernels;
const training_table avx2_training_kernels = EE_ISA::kTrainingKernels;

}  // namespace encoder_engine
#endif
