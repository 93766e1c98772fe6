// The kernels for any processor: vectors of 128 bits.
#define EE_ISA isa_portable
#include "cpu/attention_kernel.h"
#include "cpu/kernels.h"

namespace encoder_engine {

const kernel_table portable_kernels = {{EE_ISA::kFloat32Attention, EE_ISA::kBfloat16Attention}};

}  // namespace encoder_engine
