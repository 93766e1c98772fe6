// Chooses among the kernels' instruction sets.
#include "cpu/kernels.h"

#include "common/cpu_features.h"

namespace encoder_engine {

const kernel_table& kernels() {
#if defined(__x86_64__)
    switch (chosen_instruction_set()) {
        case instruction_set::amx:
        case instruction_set::avx512_bf16:
        case instruction_set::avx512: return avx512_kernels;
        case instruction_set::avx2: return avx2_kernels;
        case instruction_set::portable: break;
    }
#endif
    return portable_kernels;
}

const attention_kernel& attention_for(element_type type) {
#if defined(__x86_64__)
    if (type == element_type::bfloat16) {
        if (chosen_instruction_set() == instruction_set::amx) return amx_attention;
        if (chosen_instruction_set() == instruction_set::avx512_bf16) return avx512_bf16_attention;
    }
#endif
    return kernels().attention[static_cast<int>(type)];
}

const quantized_linear_kernel& quantized_linear_for(element_type type) {
    const int index = static_cast<int>(type);
#if defined(__x86_64__)
    if (chosen_instruction_set() == instruction_set::amx) return amx_quantized_linear[index];
#endif
    return kernels().quantized_linear[index];
}

}  // namespace encoder_engine
