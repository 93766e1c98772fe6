// The kernels for AVX2 with products of bytes, AVX-VNNI; CMakeLists.txt compiles this file for it. The others are those
// for AVX2.
#if defined(__x86_64__)
#define EE_ISA isa_avx_vnni
#include "cpu/simd/quantized_linear_kernel.h"

namespace encoder_engine {

const quantized_linear_kernel avx_vnni_quantized_linear[2] = {EE_ISA::kQuantizedLinear<float>,
                                                              EE_ISA::kQuantizedLinear<bfloat16>};

}  // namespace encoder_engine
#endif
