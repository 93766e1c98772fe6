// The kernels for AVX-512; CMakeLists.txt compiles this file for it.
#if defined(__x86_64__)
#define EE_ISA isa_avx512
#include "cpu/attention_kernel.h"
#include "cpu/kernels.h"

namespace encoder_engine {

const kernel_table avx512_kernels = {{EE_ISA::kFloat32Attention, EE_ISA::kBfloat16Attention}};

}  // namespace encoder_engine
#endif
