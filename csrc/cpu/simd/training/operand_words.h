// Lays out operands of products: elements of either type in memory, as words that are multiplied.
#pragma once

#include <type_traits>

#include "cpu/simd/element_vector.h"
#include "cpu/simd/tile.h"
#include "cpu/training/matrix_product.h"

namespace encoder_engine {
namespace EE_ISA {

// Elements in a word: one float32, or two of bfloat16.
template <typename Element>
constexpr int kWordElements = std::is_same_v<Element, float> ? 1 : 2;

// Two vectors of numbers as bfloat16, one vector after the other.
template <int... Lane>
EE_INLINE vfloat concatenate(vfloat first, vfloat second, lanes<Lane...>) {
#if defined(__AVX512BF16__)
    return reinterpret_cast<vfloat>(
        _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second), reinterpret_cast<__m512>(first)));
#else
    return reinterpret_cast<vfloat>(
        __builtin_shufflevector(round_to_bfloat16(first), round_to_bfloat16(second), Lane...));
#endif
}

EE_INLINE vword half_words(const float* from) {
    return __builtin_convertvector(round_to_bfloat16(load(from)), vword);
}
EE_INLINE vword half_words(const bfloat16* from) { return __builtin_convertvector(load<vhalf>(from), vword); }

// The words [at, at + kLanes) of `count` elements, side by side in memory; zeros beyond them.
template <typename Element, typename From>
EE_INLINE vfloat words_along(const From* row, int64_t at, int64_t count) {
    constexpr int64_t kSize = kWordElements<Element>;
    const int64_t first = kSize * at;
    if constexpr (kSize == 1) {
        return first >= count ? vfloat{} : load_part(row, first, count);
    } else {
        const auto joined = [](const From* from) EE_INLINED {
            if constexpr (std::is_same_v<From, bfloat16>) {
                return load(from);
            } else {
                return concatenate(load(from), load(from + kLanes), count_lanes<2 * kLanes>::type{});
            }
        };
        if (first + 2 * kLanes <= count) return joined(row + first);
        if (first >= count) return vfloat{};
        From some[2 * kLanes] = {};
        std::memcpy(some, row + first, static_cast<size_t>(count - first) * sizeof(From));
        return joined(some);
    }
}

// A word for each of the columns [at, at + kLanes) out of kWordElements rows from `row` on, of which
// there are `rows`; zeros where there is no row or column.
template <typename Element, typename From>
EE_INLINE vfloat words_across(const From* row, int64_t stride, int64_t rows, int64_t at, int64_t count) {
    if (rows <= 0 || at >= count) return vfloat{};
    if constexpr (kWordElements<Element> == 1) {
        return load_part(row, at, count);
    } else {
        const auto joined = [](const From* low, const From* high) EE_INLINED {
            return as_float(half_words(low) | half_words(high) << 16);
        };
        const From* const low = row + at;
        if (rows > 1 && at + kLanes <= count) return joined(low, low + stride);
        From parts[2][kLanes] = {};
        const size_t bytes = static_cast<size_t>(least<int64_t>(kLanes, count - at)) * sizeof(From);
        std::memcpy(parts[0], low, bytes);
        if (rows > 1) std::memcpy(parts[1], low + stride, bytes);
        return joined(parts[0], parts[1]);
    }
}

// Calls body with the operand's elements, of their type, from `row` and `column` on.
template <typename Body>
EE_INLINE void with_elements(const matrix_operand& from, int64_t row, int64_t column, const Body& body) {
    if (from.type == element_type::float32) {
        body(reinterpret_cast<const float*>(from.row(row)) + column);
    } else {
        body(reinterpret_cast<const bfloat16*>(from.row(row)) + column);
    }
}

// Where rows of `words` words lie for the inner loop: one after the other, or, `Tiled`, in the order of
// tile_products::lay_out().
template <bool Tiled>
EE_INLINE float* place_of(float* to, int64_t row, int64_t word, int64_t words) {
    return Tiled ? to + row / 16 * 16 * words + word * 16 + row % 16 * 16 : to + row * words + word;
}

// Writes words of `count` vectors of an operand, each `depth` elements from `first_depth` on; zeros
// beyond the depth.
template <typename Element, bool Tiled>
void lay_out_rows(const matrix_operand& from, int64_t first, int64_t count, int64_t first_depth,
                  int64_t depth, float* to, int64_t words) {
    constexpr int64_t kSize = kWordElements<Element>;
    if (!from.turned) {
        with_elements(from, first, first_depth, [&](const auto* row) {
            for (int64_t i = 0; i < count; ++i, row += from.stride) {
                for (int64_t at = 0; at < words; at += kLanes) {
                    store(place_of<Tiled>(to, i, at, words), words_along<Element>(row, at, depth));
                }
            }
        });
        return;
    }
    with_elements(from, first_depth, first, [&](const auto* row) {
        for (int64_t word = 0; word < words; word += kLanes) {
            for (int64_t number = 0; number < count; number += kLanes) {
                vfloat block[kLanes];
#pragma GCC unroll 16
                for (int step = 0; step < kLanes; ++step) {
                    const int64_t at = kSize * (word + step);
                    block[step] = words_across<Element>(row + at * from.stride, from.stride, depth - at,
                                                        number, count);
                }
                transpose(block);
                const int64_t some = Tiled ? kLanes : least<int64_t>(kLanes, count - number);
#pragma GCC unroll 16
                for (int64_t i = 0; i < kLanes; ++i) {
                    if (i < some) store(place_of<Tiled>(to, number + i, word, words), block[i]);
                }
            }
        }
    });
}

// Writes words [panel][step][number] of `count` vectors of an operand from `first` on, in panels of
// `width`, a multiple of 16; zeros where there is none. Of a turned operand, the steps
// [first_word, last_word) alone.
template <typename Element>
void lay_out_panels(const matrix_operand& from, int64_t first, int64_t count, int64_t first_depth,
                    int64_t depth, float* to, int64_t width, int64_t words, int64_t first_word,
                    int64_t last_word) {
    constexpr int64_t kSize = kWordElements<Element>;
    const int64_t filled = whole(count, width);
    if (from.turned) {
        with_elements(from, first_depth, first, [&](const auto* rows) {
            for (int64_t word = first_word; word < last_word; ++word) {
                const auto* const row = rows + kSize * word * from.stride;
                for (int64_t panel = 0; panel < filled; panel += width) {
#pragma GCC unroll 4
                    for (int64_t at = 0; at < width; at += kLanes) {
                        store(to + panel * words + word * width + at,
                              words_across<Element>(row, from.stride, depth - kSize * word, panel + at, count));
                    }
                }
            }
        });
        return;
    }
    with_elements(from, first, first_depth, [&](const auto* rows) {
        for (int64_t number = 0; number < filled; number += kLanes) {
            float* const panel = to + number / width * width * words + number % width;
            for (int64_t word = 0; word < words; word += kLanes) {
                vfloat block[kLanes];
#pragma GCC unroll 16
                for (int i = 0; i < kLanes; ++i) {
                    block[i] = number + i < count
                                   ? words_along<Element>(rows + (number + i) * from.stride, word, depth)
                                   : vfloat{};
                }
                transpose(block);
#pragma GCC unroll 16
                for (int step = 0; step < kLanes; ++step) {
                    store(panel + (word + step) * width, block[step]);
                }
            }
        }
    });
}

}  // namespace EE_ISA
}  // namespace encoder_engine
