// Chooses the kernels' instruction set.
#include "cpu/kernels.h"

#include "common/cpu_features.h"

namespace encoder_engine {
namespace {

#if defined(__x86_64__)
// The kernels for AVX2, but for products of bytes.
kernel_table make_avx_vnni_kernels() {
    kernel_table table = avx2_kernels;
    for (int type = 0; type < 2; ++type) table.quantized_linear[type] = avx_vnni_quantized_linear[type];
    return table;
}
#endif

}  // namespace

const kernel_table& kernels() {
#if defined(__x86_64__)
    switch (chosen_instruction_set()) {
        case instruction_set::amx: return amx_kernels;
        case instruction_set::avx512_bf16: return avx512_bf16_kernels;
        case instruction_set::avx512: return avx512_kernels;
        case instruction_set::avx_vnni: {
            static const kernel_table table = make_avx_vnni_kernels();
            return table;
        }
        case instruction_set::avx2: return avx2_kernels;
        default: break;
    }
#elif defined(__aarch64__)
    switch (chosen_instruction_set()) {
        case instruction_set::bf16: return bf16_kernels;
        case instruction_set::dotprod: return dotprod_kernels;
        case instruction_set::neon: return neon_kernels;
        default: break;
    }
#endif
    return portable_kernels;
}

}  // namespace encoder_engine
