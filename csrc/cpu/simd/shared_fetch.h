// Prefetches weights for AVX2 without AVX-512, but for int8 weights (widened_byte_products.h); the other levels fetch by
// panel_steps::with_fetcher().
#pragma once

#include "cpu/simd/tile.h"

#if defined(__AVX2__) && !defined(__AVX512F__)
#define EE_SHARED_FETCH

namespace encoder_engine {
namespace EE_ISA {

// Prefetches the block of weights that follows in memory, to the L2 cache: each tile of rows its share, spread over its
// steps. On Zen 4, weights that come from memory are multiplied by 400 rows 1.05 (depth 768) to 1.2 times (3,072) as
// fast as without, by 16 rows 1.3 to 1.8 in several runs, by one 2; weights in L3 by one row 0.92 to 0.95.
class shared_fetcher {
public:
    // Prefetches a line every so many steps, a power of two.
    struct steps {
        const uint8_t* from;
        int64_t mask;
        int shift;
        EE_INLINE void operator()(int64_t step) const {
            if ((step & mask) != 0) return;
            fetch_to_second_cache(from + (step >> shift) * kLineBytes);
        }
    };

    // Starts on a block of `bytes`, shared by `num_tiles` tiles of `words` steps each.
    EE_INLINE void begin(const uint8_t* block, int64_t bytes, int64_t num_tiles, int64_t words) {
        next_ = block;
        end_ = block + bytes;
        shift_ = 0;
        while (bytes > 0 && bytes <= (words >> (shift_ + 1)) * num_tiles * kLineBytes) ++shift_;
        share_ = (words >> shift_) * kLineBytes;
    }
    // Calls run(between) with what a tile fetches in its steps.
    template <typename Run>
    EE_INLINE void with_share(const Run& run) {
        if (next_ >= end_) {
            run(nothing{});
        } else {
            run(steps{next_, (int64_t{1} << shift_) - 1, shift_});
            next_ += share_;
        }
    }

private:
    static constexpr int64_t kLineBytes = 64;
    const uint8_t* next_;
    const uint8_t* end_;
    int64_t share_;
    int shift_;
};

}  // namespace EE_ISA
}  // namespace encoder_engine

#endif
