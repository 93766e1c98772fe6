// The float32 and bfloat16 operands of the packed GEMM, with float32 sums.
#pragma once

#include "cpu/simd/attention/attention_operands.h"
#include "cpu/simd/element_vector.h"
#include "cpu/simd/vector_products.h"
#if defined(__AMX_BF16__)
#include "cpu/simd/tile_products.h"
#elif defined(EE_MMLA)
#include "cpu/simd/neon/mmla_products.h"
#endif

namespace encoder_engine {
namespace EE_ISA {

struct float_words : float_operands<float> {
    using Rows = copied_rows;
};
using float_products = vector_products<float_words, float>;

#if defined(__AMX_BF16__)

using bfloat16_products = tile_products<bfloat16_dot>;

#elif defined(EE_MMLA)

using bfloat16_products = mmla_products<bfloat16_mmla>;

#elif defined(EE_BFLOAT16_PAIRS)

struct bfloat16_words : pair_operands {
    using Rows = copied_rows;
};
using bfloat16_products = vector_products<bfloat16_words, float>;

#else

// Rows as float32; of the weights two are taken from a word.
struct widened_rows : plain_rows<uint16_t> {
    static const Byte* lay_out(const void* input, int64_t count, int64_t row_bytes, Byte* to) {
        const bfloat16* from = static_cast<const bfloat16*>(input);
        const int64_t width = row_bytes / int64_t{sizeof(bfloat16)};
        const int64_t filled = whole(row_bytes, kDepthUnit);
        const Byte* const rows = to;
        for (int64_t row = 0; row < count; ++row, from += width, to += filled) {
            for (int64_t at = 0; at < filled / 2; at += kLanes) {
                store(to + 2 * at, at < width ? load_part(from, at, width) : vfloat{});
            }
        }
        return rows;
    }
};

struct bfloat16_words : float_operands<float> {
    using Rows = widened_rows;
    static constexpr int kParts = 2;

    template <int Part>
    EE_INLINE static vfloat take_part(vfloat word) {
        return as_float(Part == 0 ? as_word(word) << 16 : as_word(word) & 0xffff0000u);
    }
};
using bfloat16_products = vector_products<bfloat16_words, float>;

#endif

template <typename Element>
struct products_of {
    using type = float_products;
};
template <>
struct products_of<bfloat16> {
    using type = bfloat16_products;
};

}  // namespace EE_ISA
}  // namespace encoder_engine
