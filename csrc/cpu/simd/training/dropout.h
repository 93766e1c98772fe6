// Dropout without a stored mask: what is kept is a pure function of the seed and the place.
//
// How it works: Philox 4x32 with seven rounds (Salmon et al. 2011), as kernels/common/dropout.py, turns a
// counter into four random words, and the backward pass draws those of the forward pass again. The places
// that share a call are chosen so that lanes run along a row, whatever the instruction set.
#pragma once

#include "cpu/simd/vector.h"

namespace encoder_engine {
namespace EE_ISA {

// Which elements are dropped: a word below `threshold`; the others are multiplied by `scale`.
struct dropout_rule {
    uint64_t seed;
    uint32_t threshold;
    float scale;

    dropout_rule(uint64_t drawn, float probability)
        : seed(drawn),
          threshold(static_cast<uint32_t>(static_cast<double>(probability) * 4294967296.0)),
          scale(1.0f / (1.0f - probability)) {}

    EE_INLINE vfloat factor(vword word) const {
        return as_float(as_word(broadcast(scale)) & reinterpret_cast<vword>(word >= broadcast(threshold)));
    }
};

EE_INLINE void multiply_wide(vword a, uint32_t b, vword& high, vword& low) {
#if defined(__AVX2__)
    using vlong = uint64_t __attribute__((vector_size(kVectorBytes)));
    const vlong x = reinterpret_cast<vlong>(a);
#if defined(__AVX512F__)
    const __m512i factor = _mm512_set1_epi32(static_cast<int>(b));
    const vlong even = reinterpret_cast<vlong>(_mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x), factor));
    const vlong odd = reinterpret_cast<vlong>(
        _mm512_maskz_mul_epu32(0xff, reinterpret_cast<__m512i>(x >> 32), factor));
#else
    const __m256i factor = _mm256_set1_epi32(static_cast<int>(b));
    const vlong even = reinterpret_cast<vlong>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x), factor));
    const vlong odd = reinterpret_cast<vlong>(_mm256_mul_epu32(reinterpret_cast<__m256i>(x >> 32), factor));
#endif
    constexpr uint64_t kUpper = 0xffffffff00000000u;
    high = reinterpret_cast<vword>((even >> 32) | (odd & kUpper));
    low = reinterpret_cast<vword>((even & ~kUpper) | (odd << 32));
#else
    uint32_t upper[kLanes], lower[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        const uint64_t product = uint64_t{a[lane]} * b;
        upper[lane] = static_cast<uint32_t>(product >> 32);
        lower[lane] = static_cast<uint32_t>(product);
    }
    high = load<vword>(upper);
    low = load<vword>(lower);
#endif
}

// Turns a counter into four words, in place.
EE_INLINE void draw_words(vword (&counter)[4], uint64_t seed) {
    uint32_t low_key = static_cast<uint32_t>(seed), high_key = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll 7
    for (int round = 0; round < 7; ++round) {
        vword high[2] = {}, low[2] = {};
        multiply_wide(counter[0], 0xD2511F53u, high[0], low[0]);
        multiply_wide(counter[2], 0xCD9E8D57u, high[1], low[1]);
        counter[0] = high[1] ^ counter[1] ^ broadcast(low_key);
        counter[1] = low[1];
        counter[2] = high[0] ^ counter[3] ^ broadcast(high_key);
        counter[3] = low[0];
        low_key += 0x9E3779B9u;
        high_key += 0xBB67AE85u;
    }
}

EE_INLINE vword lane_numbers() {
    uint32_t numbers[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = static_cast<uint32_t>(lane);
    return load<vword>(numbers);
}

// Writes the factors of a row's features, 0 or scale, for the width filled up to 64.
EE_INLINE void draw_features(const dropout_rule& rule, int64_t row, int64_t width, float* to) {
    for (int64_t block = 0; block < width; block += 64) {
        for (int64_t lane = 0; lane < 16; lane += kLanes) {
            const uint64_t place = static_cast<uint64_t>(row);
            vword words[4] = {lane_numbers() + static_cast<uint32_t>(block / 4 + lane),
                              broadcast(static_cast<uint32_t>(place)),
                              broadcast(static_cast<uint32_t>(place >> 32)), broadcast(0u)};
            draw_words(words, rule.seed);
            for (int i = 0; i < 4; ++i) store(to + block + 16 * i + lane, rule.factor(words[i]));
        }
    }
}

// Writes the factors of the weights of four queries from `query` on, a multiple of 4, to rows of
// `stride`: of the keys from `key` on, `count` of them, a multiple of 16. `stream`: sequence and head.
EE_INLINE void draw_weights(const dropout_rule& rule, int64_t stream, int64_t query, int64_t key,
                            int64_t count, float* to, int64_t stride) {
    for (int64_t at = 0; at < count; at += kLanes) {
        vword words[4] = {lane_numbers() + static_cast<uint32_t>(key + at),
                          broadcast(static_cast<uint32_t>(query / 4)),
                          broadcast(static_cast<uint32_t>(stream)), broadcast(1u)};
        draw_words(words, rule.seed);
        for (int i = 0; i < 4; ++i) store(to + i * stride + at, rule.factor(words[i]));
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
