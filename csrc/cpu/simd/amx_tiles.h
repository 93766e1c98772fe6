// The tile registers of AMX: eight of 16 rows of 64 bytes, configured alike.
#pragma once

#include <immintrin.h>

#include "cpu/simd/vector.h"

namespace encoder_engine {
namespace EE_ISA {

struct alignas(64) tile_shapes {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// Configures the tiles of the calling thread, until _tile_release.
EE_INLINE void configure_tiles() {
    static constexpr tile_shapes kShapes;
    __asm__ volatile("ldtilecfg %0" : : "m"(kShapes));
}

// GCC 12 does not know that a tile load reads memory: the barrier makes earlier stores visible.
template <int Tile>
EE_INLINE void load_tile(const void* from, int64_t row_bytes) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(row_bytes), "i"(Tile)
                     : "memory");
}
// A tile load with a non-temporal hint, which keeps other data in the L1 cache.
template <int Tile>
EE_INLINE void stream_tile(const void* from, int64_t row_bytes) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2"
                     :
                     : "r"(from), "r"(row_bytes), "i"(Tile)
                     : "memory");
}
template <int Tile>
EE_INLINE void store_tile(void* to, int64_t row_bytes) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)"
                     :
                     : "r"(to), "r"(row_bytes), "i"(Tile)
                     : "memory");
}

}  // namespace EE_ISA
}  // namespace encoder_engine
