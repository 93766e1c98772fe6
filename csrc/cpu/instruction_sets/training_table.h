// All kernels of training, compiled for EE_ISA.
#pragma once

#include "cpu/simd/training/activation_gradient_kernel.h"
#include "cpu/simd/training/adamw_kernel.h"
#include "cpu/simd/training/attention_gradient_kernel.h"
#include "cpu/simd/training/cross_entropy_kernel.h"
#include "cpu/simd/training/matrix_product_kernel.h"
#include "cpu/simd/training/norm_gradient_kernel.h"
#include "cpu/training/training_kernels.h"

namespace encoder_engine {
namespace EE_ISA {

constexpr training_table kTrainingKernels = {
    {kMatrixProduct<float>, kMatrixProduct<bfloat16>},
    {normalize_for_training<float, float>, normalize_for_training<bfloat16, bfloat16>,
     normalize_for_training<bfloat16, float>},
    {norm_gradient<float, float, float>, norm_gradient<bfloat16, bfloat16, bfloat16>,
     norm_gradient<bfloat16, float, float>, norm_gradient<bfloat16, float, bfloat16>},
    {activation_gradient<float>, activation_gradient<bfloat16>},
    {sum_columns<float>, sum_columns<bfloat16>},
    {drop_features<float>, drop_features<bfloat16>},
    {cross_entropy_rows<float>, cross_entropy_rows<bfloat16>},
    {kAttentionTraining<float>, kAttentionTraining<bfloat16>},
    sum_squares,
    take_adamw_step,
    add_table_row,
};

}  // namespace EE_ISA
}  // namespace encoder_engine
