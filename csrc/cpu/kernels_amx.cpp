// What AMX multiplies, bytes and bfloat16; CMakeLists.txt compiles this file for it.
#if defined(__x86_64__)
#define EE_ISA isa_amx
#include "cpu/amx_attention_kernel.h"
#include "cpu/kernels.h"
#include "cpu/quantized_linear_kernel.h"

namespace encoder_engine {

const attention_kernel amx_attention = EE_ISA::kTileAttention;
const quantized_linear_kernel amx_quantized_linear[2] = {EE_ISA::kQuantizedLinear<float>,
                                                         EE_ISA::kQuantizedLinear<bfloat16>};

}  // namespace encoder_engine
#endif
