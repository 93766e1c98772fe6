// All kernels, compiled for EE_ISA.
#pragma once

#include "cpu/simd/activation_kernel.h"
#include "cpu/simd/attention/attention_piece.h"
#if defined(__AMX_BF16__)
#include "cpu/simd/attention/amx_attention_kernel.h"
#endif
#include "cpu/simd/embedding_kernel.h"
#include "cpu/kernels.h"
#include "cpu/simd/norm_kernel.h"
#include "cpu/simd/packed_linear_kernel.h"
#include "cpu/simd/quantized_linear_kernel.h"
#include "cpu/simd/rotary_kernel.h"
#include "cpu/simd/softmax_sum_kernel.h"
#include "cpu/simd/static_kernel.h"

namespace encoder_engine {
namespace EE_ISA {

#if defined(__AMX_BF16__)
constexpr attention_kernel kBfloat16Attention = kTileAttention;
#elif defined(EE_BFLOAT16_PAIRS)
constexpr attention_kernel kBfloat16Attention = kAttention<pair_operands>;
#else
constexpr attention_kernel kBfloat16Attention = kAttention<float_operands<bfloat16>>;
#endif

constexpr kernel_table kKernels = {
    {kAttention<float_operands<float>>, kBfloat16Attention},
    {normalize_rows<float>, normalize_rows<bfloat16>},
    {embed_rows<float>, embed_rows<bfloat16>},
    {pool_rows<float>, pool_rows<bfloat16>},
    {mean_static_rows<float>, mean_static_rows<float16>, mean_static_rows<bfloat16>,
     mean_static_rows<int8_t>},
    {activate_rows<float>, activate_rows<bfloat16>},
    {add_rows<float>, add_rows<bfloat16>},
    {rotate_rows<float>, rotate_rows<bfloat16>},
    {quantize_rows<float>, quantize_rows<bfloat16>},
    {add_softmax_sums<float>, add_softmax_sums<bfloat16>},
    {kQuantizedLinear<float>, kQuantizedLinear<bfloat16>},
    {kPackedLinear<float>, kPackedLinear<bfloat16>},
};

}  // namespace EE_ISA
}  // namespace encoder_engine
