// Attention for AVX-512 with products of bfloat16; CMakeLists.txt compiles this file for it.
#if defined(__x86_64__)
#define EE_ISA isa_avx512_bf16
#include "cpu/attention_kernel.h"
#include "cpu/kernels.h"

namespace encoder_engine {

const attention_kernel avx512_bf16_attention = EE_ISA::kAttention<EE_ISA::pair_operands>;

}  // namespace encoder_engine
#endif
