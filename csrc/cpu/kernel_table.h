// All kernels, compiled for EE_ISA.
#pragma once

#include "cpu/activation_kernel.h"
#include "cpu/attention_kernel.h"
#include "cpu/embedding_kernel.h"
#include "cpu/kernels.h"
#include "cpu/norm_kernel.h"
#include "cpu/quantized_linear_kernel.h"

namespace encoder_engine {
namespace EE_ISA {

constexpr kernel_table kKernels = {
    {kAttention<float_operands<float>>, kAttention<float_operands<bfloat16>>},
    {normalize_rows<float>, normalize_rows<bfloat16>},
    {embed_rows<float>, embed_rows<bfloat16>},
    {pool_rows<float>, pool_rows<bfloat16>},
    {activate_rows<float>, activate_rows<bfloat16>},
    {quantize_rows<float>, quantize_rows<bfloat16>},
    {kQuantizedLinear<float>, kQuantizedLinear<bfloat16>},
};

}  // namespace EE_ISA
}  // namespace encoder_engine
