// The kernels for NEON with products of bytes; CMakeLists.txt compiles this file for it.
#if defined(__aarch64__)
#define EE_ISA isa_dotprod
#define EE_NEON
#include "cpu/instruction_sets/kernel_table.h"
#include "cpu/instruction_sets/training_table.h"

namespace encoder_engine {

const kernel_table dotprod_kernels = EE_ISA::kKernels;
const training_table dotprod_training_kernels = EE_ISA::kTrainingKernels;

}  // namespace encoder_engine
#endif
