// The kernels for AVX2; CMakeLists.txt compiles this file for it.
#if defined(__x86_64__)
#define EE_ISA isa_avx2
#include "cpu/attention_kernel.h"
#include "cpu/kernels.h"

namespace encoder_engine {

const kernel_table avx2_kernels = {{EE_ISA::kFloat32Attention, EE_ISA::kBfloat16Attention}};

}  // namespace encoder_engine
#endif
