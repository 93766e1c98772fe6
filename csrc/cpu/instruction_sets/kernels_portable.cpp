// The kernels for any processor: vectors of 128 bits.
#define EE_ISA isa_portable
#include "cpu/instruction_sets/kernel_table.h"
#include "cpu/instruction_sets/training_table.h"

namespace encoder_engine {

const kernel_table portable_kernels = EE_ISA::kKernels;
const training_table portable_training_kernels = EE_ISA::kTrainingKernels;

}  // namespace encoder_engine
