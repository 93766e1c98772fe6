// Normalisation and quantization of rows: one pass over memory, further passes over the cached row.
#pragma once

#include "cpu/simd/element_vector.h"
#include "cpu/rows.h"

namespace encoder_engine {
namespace EE_ISA {

// Four partial sums, joined at the end: a single one would wait for the latency of each addition.
struct row_sum {
    vfloat parts[4] = {};

    EE_INLINE float total() const {
        float lanes[kLanes];
        store(lanes, (parts[0] + parts[1]) + (parts[2] + parts[3]));
        for (int half = kLanes / 2; half > 0; half /= 2) {
            for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
        }
        return lanes[0];
    }
};

// Calls body(first, part) for each vector of a row; `part` counts 0, 1, 2, 3, 0, ...
template <typename Body>
EE_INLINE void for_each_vector(int64_t width, const Body& body) {
    int64_t first = 0;
    for (; first + 4 * kLanes <= width; first += 4 * kLanes) {
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) body(first + part * kLanes, part);
    }
    for (int part = 0; first < width; first += kLanes, ++part) body(first, part);
}

// Ones in the first `count` lanes and zeros after them: a mask for a row's last vector.
EE_INLINE vfloat ones_until(int64_t count) {
    float ones[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) ones[lane] = lane < count ? 1.0f : 0.0f;
    return load(ones);
}

using vbyte = uint8_t __attribute__((vector_size(kLanes)));

// The lowest eight bits of each lane: GCC 12 takes a dozen steps a lane for the plain conversion.
EE_INLINE vbyte low_bytes(vword x) {
#if defined(__AVX512F__)
    return reinterpret_cast<vbyte>(
        _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(x)));
#elif defined(__AVX2__)
    const __m256i first = _mm256_set1_epi32(0x0c080400);
    const __m256i joined = _mm256_shuffle_epi8(reinterpret_cast<__m256i>(x), first);
    const __m128i both = _mm_unpacklo_epi32(_mm256_castsi256_si128(joined),
                                            _mm256_extracti128_si256(joined, 1));
    return load<vbyte>(&both);
#else
    return __builtin_convertvector(x, vbyte);
#endif
}

// Bytes of `x` in the lowest eight bits of each lane.
EE_INLINE void store_bytes(uint8_t* to, int64_t count, vword x) {
    const vbyte bytes = low_bytes(x);
    if (count >= kLanes) {
        store(to, bytes);
    } else {
        std::memcpy(to, &bytes, static_cast<size_t>(count));
    }
}

// The largest magnitude of a row, as bits: NaN has the largest bits.
struct row_extent {
    vint largest = {};

    EE_INLINE void add(vfloat x) {
        const vint bits = reinterpret_cast<vint>(as_word(x) & 0x7fffffffu);
        largest = bits > largest ? bits : largest;
    }
    // Returns largest magnitude / 127; 1 near 0, where the inverse of the scale would be infinite;
    // NaN for a row with an infinity or NaN.
    EE_INLINE float scale() const {
        int32_t lanes[kLanes], bits = 0;
        store(lanes, largest);
        for (int lane = 0; lane < kLanes; ++lane) bits = bits < lanes[lane] ? lanes[lane] : bits;
        float most;
        std::memcpy(&most, &bits, sizeof(most));
        if (!(most < __builtin_inff())) return __builtin_nanf("");
        return most < 0x1p-100f ? 1.0f : most / 127.0f;
    }
};

// Writes a row's bytes, zero point 128; returns its scale.
EE_INLINE float quantize_row(const float* row_D, int64_t width, const row_extent& extent,
                             uint8_t* output) {
    const float scale = extent.scale();
    const vfloat factor = broadcast(1.0f / scale);
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits, here with 128 more.
    const vfloat magic = broadcast(12582912.0f + 128.0f);
    for_each_vector(width, [&](int64_t at, int) EE_INLINED {
        store_bytes(output + at, width - at, as_word(load(row_D + at) * factor + magic));
    });
    return scale;
}

// Subtracts the mean of a row in place, if `centred`; returns the reciprocal standard deviation.
EE_INLINE vfloat centre_row(float* row_D, int64_t width, const row_sum& sum, bool centred, float epsilon) {
    const float share = 1.0f / static_cast<float>(width);
    const int64_t last = (width - 1) / kLanes * kLanes;
    const vfloat kept = ones_until(width - last);
    const vfloat mean = broadcast(centred ? sum.total() * share : 0.0f);
    row_sum squares;
    for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
        vfloat x = load(row_D + at) - mean;
        if (at == last) x = x * kept;
        store(row_D + at, x);
        squares.parts[part] = squares.parts[part] + x * x;
    });
    return broadcast(1.0f / __builtin_sqrtf(squares.total() * share + epsilon));
}

template <typename Element>
EE_INLINE vfloat normalized_part(const float* row_D, int64_t at, int64_t width, vfloat factor,
                                 const Element* weight, const Element* bias) {
    const vfloat y = load(row_D + at) * factor * load_part(weight, at, width);
    return bias == nullptr ? y : y + load_part(bias, at, width);
}

template <typename Element>
void normalize_rows(const norm_call& call, int64_t first_row, int64_t last_row, float* row_D) {
    const int64_t width = call.width;
    const Element* const weight = static_cast<const Element*>(call.weight);
    const Element* const bias = static_cast<const Element*>(call.bias);
    for (int64_t row = first_row; row < last_row; ++row) {
        const Element* const input = static_cast<const Element*>(call.input) + row * width;
        const Element* const residual =
            call.residual == nullptr ? nullptr : static_cast<const Element*>(call.residual) + row * width;
        row_sum sum;
        for_each_vector(width, [&](int64_t at, int part) EE_INLINED {
            vfloat x = load_part(input, at, width);
            if (residual != nullptr) x = x + load_part(residual, at, width);
            store(row_D + at, x);
            sum.parts[part] = sum.parts[part] + x;
        });
        if (call.sum != nullptr) {
            Element* const to = static_cast<Element*>(call.sum) + row * width;
            for_each_vector(width, [&](int64_t at, int) EE_INLINED { store_part(to, at, width, load(row_D + at)); });
        }
        const vfloat factor = centre_row(row_D, width, sum, call.centred, call.epsilon);
        Element* const output = static_cast<Element*>(call.output) + row * width;
        row_extent extent;
        for_each_vector(width, [&](int64_t at, int) EE_INLINED {
            const vfloat y = normalized_part(row_D, at, width, factor, weight, bias);
            store_part(output, at, width, y);
            if (call.quantized == nullptr) return;
            extent.add(y);
            store(row_D + at, y);
        });
        if (call.quantized != nullptr) {
            call.scales[row] = quantize_row(row_D, width, extent, call.quantized + row * width);
        }
    }
}

template <typename Element>
void quantize_rows(const quantize_call& call, int64_t first_row, int64_t last_row, float* row_D) {
    const int64_t width = call.width;
    for (int64_t row = first_row; row < last_row; ++row) {
        const Element* const input = static_cast<const Element*>(call.input) + row * width;
        row_extent extent;
        for_each_vector(width, [&](int64_t at, int) EE_INLINED {
            const vfloat x = load_part(input, at, width);
            extent.add(x);
            store(row_D + at, x);
        });
        call.scales[row] = quantize_row(row_D, width, extent, call.output + row * width);
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
