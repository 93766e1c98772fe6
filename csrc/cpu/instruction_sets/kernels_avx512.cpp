// The kernels for AVX-512; CMakeLists.txt compiles this file for it.
#if defined(__x86_64__)
#define EE_ISA isa_avx512
#include "cpu/instruction_sets/kernel_table.h"
#include "cpu/instruction_sets/training_table.h"

namespace encoder_engine {

const kernel_table avx512_kernels = EE_ISA::kKernels;
const training_table avx512_training_kernels = EE_ISA::kTrainingKernels;

}  // namespace encoder_engine
#endif
