// Sums of products of bytes for a block of rows and a panel of features out, exact on each instruction
// set.
#pragma once

#include "cpu/quantized_linear.h"
#include "cpu/tile.h"

#if defined(__AMX_INT8__)
#include "cpu/amx_tiles.h"
#endif

namespace encoder_engine {
namespace EE_ISA {

constexpr int64_t kBlockRows = 32;

#if defined(__AMX_INT8__)

// Tiles of 16 rows of 64 bytes: four of sums, two of rows of the input, two of weights.
struct tile_products {
    using Word = uint8_t;
    static constexpr int64_t kTileRows = 16, kTileBytes = 1024;

    static void begin() { configure_tiles(); }
    static void end() { _tile_release(); }

    // Tile after tile along the depth, then down the rows.
    static void lay_out(const uint8_t* input, int64_t count, int64_t depth, Word* to) {
        const int64_t filled = whole(depth, kDepthUnit);
        for (int64_t row = 0; row < whole(count, kTileRows); ++row) {
            Word* const line = to + row / kTileRows * kTileRows * filled + row % kTileRows * kDepthUnit;
            for (int64_t at = 0; at < filled; at += kDepthUnit) {
                const int64_t left = row < count ? least(kDepthUnit, depth - at) : 0;
                const __mmask64 kept = left == kDepthUnit ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
                _mm512_storeu_si512(line + at * kTileRows,
                                    _mm512_maskz_loadu_epi8(kept, input + row * depth + at));
            }
        }
    }

    static void multiply(const Word* rows, int64_t count, const int8_t* panel, int64_t filled,
                         const int32_t* corrections, int32_t* sums) {
        if (count <= kTileRows) {
            narrow(rows, panel, filled, corrections, sums);
        } else {
            for (int64_t at = 0; at < kPanelWidth; at += 2 * kTileRows) {
                wide(rows, panel + at * kDepthGroup, filled, corrections + at, sums + at);
            }
        }
    }

private:
    static constexpr long kPanelRow = kPanelWidth * kDepthGroup;
    static constexpr long kSumsRow = kPanelWidth * long{sizeof(int32_t)};

    // 32 rows, 32 features.
    static void wide(const Word* rows, const int8_t* panel, int64_t filled, const int32_t* corrections,
                     int32_t* sums) {
        const Word* const below = rows + kTileRows * filled;
        load_tile<0>(corrections, 0);
        load_tile<1>(corrections + 16, 0);
        load_tile<2>(corrections, 0);
        load_tile<3>(corrections + 16, 0);
        for (int64_t at = 0; at < filled; at += kDepthUnit) {
            load_tile<6>(panel, kPanelRow);
            load_tile<4>(rows + at * kTileRows, kDepthUnit);
            load_tile<7>(panel + 64, kPanelRow);
            _tile_dpbusd(0, 4, 6);
            load_tile<5>(below + at * kTileRows, kDepthUnit);
            _tile_dpbusd(1, 4, 7);
            _tile_dpbusd(2, 5, 6);
            _tile_dpbusd(3, 5, 7);
            panel += kTileRows * kPanelRow;
        }
        store_tile<0>(sums, kSumsRow);
        store_tile<1>(sums + 16, kSumsRow);
        store_tile<2>(sums + kTileRows * kPanelWidth, kSumsRow);
        store_tile<3>(sums + kTileRows * kPanelWidth + 16, kSumsRow);
    }

    // 16 rows, 64 features.
    static void narrow(const Word* rows, const int8_t* panel, int64_t filled,
                       const int32_t* corrections, int32_t* sums) {
        load_tile<0>(corrections, 0);
        load_tile<1>(corrections + 16, 0);
        load_tile<2>(corrections + 32, 0);
        load_tile<3>(corrections + 48, 0);
        for (int64_t at = 0; at < filled; at += kDepthUnit) {
            load_tile<4>(rows + at * kTileRows, kDepthUnit);
            load_tile<5>(panel, kPanelRow);
            _tile_dpbusd(0, 4, 5);
            load_tile<6>(panel + 64, kPanelRow);
            _tile_dpbusd(1, 4, 6);
            load_tile<7>(panel + 128, kPanelRow);
            _tile_dpbusd(2, 4, 7);
            load_tile<5>(panel + 192, kPanelRow);
            _tile_dpbusd(3, 4, 5);
            panel += kTileRows * kPanelRow;
        }
        store_tile<0>(sums, kSumsRow);
        store_tile<1>(sums + 16, kSumsRow);
        store_tile<2>(sums + 32, kSumsRow);
        store_tile<3>(sums + 48, kSumsRow);
    }
};

using byte_products = tile_products;

#else

// What the other instruction sets share: rows side by side, each filled up with zeros.
template <typename Word_>
struct plain_rows {
    using Word = Word_;
    static void begin() {}
    static void end() {}
    static void lay_out(const uint8_t* input, int64_t count, int64_t depth, Word* to) {
        const int64_t filled = whole(depth, kDepthUnit);
        for (int64_t row = 0; row < count; ++row, input += depth, to += filled) {
            for (int64_t at = 0; at < depth; ++at) to[at] = input[at];
            for (int64_t at = depth; at < filled; ++at) to[at] = 0;
        }
    }
};

#if defined(__AVX512VNNI__)

struct byte_operands {
    EE_INLINE static vfloat broadcast_word(const float* from) {
        uint32_t word;
        std::memcpy(&word, from, sizeof(word));
        return as_float(broadcast(word));
    }
    EE_INLINE static vfloat multiply_add(vfloat a, vfloat b, vfloat sum) {
        // Of the built-in GCC 12 copies each sum to and fro, and has too few registers for that.
        __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
        return sum;
    }
};

struct byte_products : plain_rows<uint8_t> {
    static void multiply(const Word* rows, int64_t count, const int8_t* panel, int64_t filled,
                         const int32_t* corrections, int32_t* sums) {
        for (int64_t at = 0; at < filled; at += kDepthBlock) {
            const int64_t depth = least(kDepthBlock, filled - at);
            for_each_tile<4>(count, [&](int64_t first, auto tile) {
                int32_t* const to = sums + first * kPanelWidth;
                multiply_tile<decltype(tile)::value>(
                    rows + first * filled + at, filled, panel + at * kPanelWidth, depth,
                    at == 0 ? corrections : to, at == 0 ? 0 : kPanelWidth, to);
            });
        }
    }

private:
    // Of a panel as much as stays in the nearest cache while all rows meet it.
    static constexpr int64_t kDepthBlock = 256;

    template <int Rows>
    EE_TILE static void multiply_tile(const Word* rows, int64_t row_bytes, const int8_t* panel,
                                      int64_t depth, const int32_t* before, int64_t before_row,
                                      int32_t* sums) {
        vfloat totals[Rows][4];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) totals[r][c] = load(before + r * before_row + c * kLanes);
        }
        encoder_engine::EE_ISA::multiply<byte_operands>(
            reinterpret_cast<const float*>(rows), row_bytes / kDepthGroup, 1,
            reinterpret_cast<const float*>(panel), kPanelWidth, depth / kDepthGroup, totals);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) store(sums + r * kPanelWidth + c * kLanes, totals[r][c]);
        }
    }
};

#elif defined(__AVX2__)

// Without VNNI products of bytes are summed in pairs of 16 bits, which saturate: these are of 16 bits,
// summed in 32.
struct byte_products : plain_rows<uint16_t> {
    static void multiply(const Word* rows, int64_t count, const int8_t* panel, int64_t filled,
                         const int32_t* corrections, int32_t* sums) {
        for (int64_t at = 0; at < kPanelWidth; at += kColumns) {
            for (int64_t first = 0; first < count; first += kRows) {
                with_number<kRows>(static_cast<int>(least<int64_t>(kRows, count - first)), [&](auto tile) {
                    multiply_tile<decltype(tile)::value>(
                        rows + first * filled, panel + at * kDepthGroup, filled, corrections + at,
                        sums + first * kPanelWidth + at);
                });
            }
        }
    }

private:
    static constexpr int kRows = 3, kColumns = 16;

    template <int Rows>
    EE_TILE static void multiply_tile(const Word* rows, const int8_t* panel, int64_t filled,
                                      const int32_t* corrections, int32_t* sums) {
        __m256i totals[Rows][4] = {};
        for (int64_t at = 0; at < filled; at += kDepthGroup, panel += kPanelWidth * kDepthGroup) {
            __m256i weights[4];
#pragma GCC unroll 4
            for (int c = 0; c < 4; ++c) {
                weights[c] = _mm256_cvtepi8_epi16(load<__m128i>(panel + 16 * c));
            }
#pragma GCC unroll 3
            for (int r = 0; r < Rows; ++r) {
                long long four;
                std::memcpy(&four, rows + r * filled + at, sizeof(four));
                const __m256i factors = _mm256_set1_epi64x(four);
#pragma GCC unroll 4
                for (int c = 0; c < 4; ++c) {
                    totals[r][c] = _mm256_add_epi32(totals[r][c], _mm256_madd_epi16(factors, weights[c]));
                }
            }
        }
#pragma GCC unroll 3
        for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 2
            for (int half = 0; half < 2; ++half) {
                // Neighbours belong to one feature; they come out as features 0 1 4 5 2 3 6 7.
                const __m256i joined = _mm256_hadd_epi32(totals[r][2 * half], totals[r][2 * half + 1]);
                const __m256i ordered = _mm256_permute4x64_epi64(joined, 0b11011000);
                store(sums + r * kPanelWidth + 8 * half,
                      _mm256_add_epi32(ordered, load<__m256i>(corrections + 8 * half)));
            }
        }
    }
};

#else

struct byte_products : plain_rows<uint8_t> {
    static void multiply(const Word* rows, int64_t count, const int8_t* panel, int64_t filled,
                         const int32_t* corrections, int32_t* sums) {
        for (int64_t row = 0; row < count; ++row, rows += filled, sums += kPanelWidth) {
            std::memcpy(sums, corrections, kPanelWidth * sizeof(int32_t));
            for (int64_t at = 0; at < filled; at += kDepthGroup) {
                const int8_t* const weights = panel + at * kPanelWidth;
                for (int64_t feature = 0; feature < kPanelWidth; ++feature) {
                    for (int64_t i = 0; i < kDepthGroup; ++i) {
                        sums[feature] += rows[at + i] * weights[feature * kDepthGroup + i];
                    }
                }
            }
        }
    }
};

#endif
#endif

}  // namespace EE_ISA
}  // namespace encoder_engine
