// Loops that the compiler vectorises: memory bandwidth limits them on every instruction set.
#include "cpu/conversion.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "common/parallel.h"

namespace encoder_engine {
namespace {

// Elements of a chunk: some microseconds of work.
constexpr int64_t kChunk = 1 << 16;

// Calls run(first, last) for chunks of [0, count), shared among threads.
template <typename Run>
void share(int64_t count, int64_t chunk, int num_threads, const Run& run) {
    const int64_t num_chunks = (count + chunk - 1) / chunk;
    std::atomic<int64_t> next{0};
    run_parallel(team_size(num_chunks / 2, num_threads), [&] {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_chunks;) {
            run(i * chunk, std::min((i + 1) * chunk, count));
        }
    });
}

float widened(bfloat16 x) {
    const uint32_t bits = uint32_t{x.bits} << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

bfloat16 narrowed(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded)};
}

// The largest of the numbers' bits without the sign: NaN has the largest, infinity the next.
template <typename Word>
Word largest_bits(const void* input, int64_t first, int64_t last) {
    constexpr Word kMagnitude = std::numeric_limits<Word>::max();
    const char* const from = static_cast<const char*>(input);
    Word largest = 0;
    for (int64_t i = first; i < last; ++i) {
        Word bits;
        // A file's tensors may lie at any byte.
        std::memcpy(&bits, from + i * int64_t{sizeof(Word)}, sizeof(bits));
        bits = static_cast<Word>(bits & kMagnitude);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

template <typename Word>
Word largest_bits_of_all(const void* input, int64_t count, int num_threads) {
    Word largest = 0;
    std::mutex mutex;
    share(count, kChunk, num_threads, [&](int64_t first, int64_t last) {
        const Word found = largest_bits<Word>(input, first, last);
        const std::lock_guard<std::mutex> lock(mutex);
        largest = std::max(largest, found);
    });
    return largest;
}

double float16_of(int16_t bits) {
    const int exponent = bits >> 10, fraction = bits & 0x3ff;
    if (exponent == 31) {
        return fraction == 0 ? std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::quiet_NaN();
    }
    return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

float load_float(const float* from) { return *from; }
float load_float(const bfloat16* from) { return widened(*from); }

template <typename Element>
void quantize_rows_of(const Element* weight, int64_t first, int64_t last, int64_t width, int8_t* output,
                      float* scales) {
    // Adding 1.5 * 2^23 leaves the nearest integer in the low bits.
    constexpr float kMagic = 12582912.0f;
    for (int64_t row = first; row < last; ++row) {
        const Element* const from = weight + row * width;
        int8_t* const to = output + row * width;
        int32_t largest = 0;
        for (int64_t i = 0; i < width; ++i) {
            const float x = load_float(from + i);
            int32_t bits;
            std::memcpy(&bits, &x, sizeof(bits));
            bits &= 0x7fffffff;
            largest = bits > largest ? bits : largest;
        }
        float most;
        std::memcpy(&most, &largest, sizeof(most));
        if (!(most < std::numeric_limits<float>::infinity())) {
            scales[row] = std::numeric_limits<float>::quiet_NaN();
            std::fill_n(to, width, int8_t{0});
            continue;
        }
        const float scale = most < 0x1p-100f ? 1.0f : most / 127.0f;
        scales[row] = scale;
        for (int64_t i = 0; i < width; ++i) {
            const float shifted = load_float(from + i) / scale + kMagic;
            int32_t bits;
            std::memcpy(&bits, &shifted, sizeof(bits));
            to[i] = static_cast<int8_t>(bits & 0xff);
        }
    }
}

}  // namespace

void widen(const bfloat16* input, float* output, int64_t count, int num_threads) {
    share(count, kChunk, num_threads, [=](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) output[i] = widened(input[i]);
    });
}

void narrow(const float* input, bfloat16* output, int64_t count, int num_threads) {
    share(count, kChunk, num_threads, [=](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) output[i] = narrowed(input[i]);
    });
}

double largest_magnitude(number_type type, const void* input, int64_t count, int num_threads) {
    switch (type) {
        case number_type::float64: {
            const int64_t bits = largest_bits_of_all<int64_t>(input, count, num_threads);
            double most;
            std::memcpy(&most, &bits, sizeof(most));
            return most;
        }
        case number_type::float32: {
            const int32_t bits = largest_bits_of_all<int32_t>(input, count, num_threads);
            float most;
            std::memcpy(&most, &bits, sizeof(most));
            return double{most};
        }
        case number_type::float16:
            return float16_of(largest_bits_of_all<int16_t>(input, count, num_threads));
        case number_type::bfloat16:
            return double{widened({static_cast<uint16_t>(
                largest_bits_of_all<int16_t>(input, count, num_threads))})};
    }
    return 0.0;
}

void quantize_weight(element_type type, const void* weight, int64_t num_rows, int64_t width,
                     int8_t* output, float* scales, int num_threads) {
    const int64_t rows = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, width));
    share(num_rows, rows, num_threads, [=](int64_t first, int64_t last) {
        if (type == element_type::float32) {
            quantize_rows_of(static_cast<const float*>(weight), first, last, width, output, scales);
        } else {
            quantize_rows_of(static_cast<const bfloat16*>(weight), first, last, width, output, scales);
        }
    });
}

}  // namespace encoder_engine
