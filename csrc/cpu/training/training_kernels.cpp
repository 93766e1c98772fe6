// Chooses the instruction set of training's kernels.
#include "cpu/training/training_kernels.h"

#include "common/cpu_features.h"

namespace encoder_engine {

const training_table& training_kernels() {
#if defined(__x86_64__)
    switch (chosen_instruction_set()) {
        case instruction_set::amx: return amx_training_kernels;
        case instruction_set::avx512_bf16: return avx512_bf16_training_kernels;
        case instruction_set::avx512: return avx512_training_kernels;
        case instruction_set::avx_vnni:
        case instruction_set::avx2: return avx2_training_kernels;
        default: break;
    }
#elif defined(__aarch64__)
    switch (chosen_instruction_set()) {
        case instruction_set::bf16: return bf16_training_kernels;
        case instruction_set::dotprod: return dotprod_training_kernels;
        case instruction_set::neon: return neon_training_kernels;
        default: break;
    }
#endif
    return portable_training_kernels;
}

}  // namespace encoder_engine
