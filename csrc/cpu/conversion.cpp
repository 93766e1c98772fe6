// Loops that the compiler vectorises: memory bandwidth limits them on every instruction set.
#include "cpu/conversion.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

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
