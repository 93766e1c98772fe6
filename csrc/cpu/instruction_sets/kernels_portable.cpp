// The kernels for any processor: vectors of 128 bits.
#define EE_ISA isa_portable
#include "cpu/instruction_sets/kernel_table.h"

namespace encoder_engine {

const kernel_table portable_kernels = EE_ISA::kKernels;

}  // namespace encoder_engine
