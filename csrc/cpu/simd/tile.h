// Products of small matrices in registers; lanes run along a row of the right matrix.
#pragma once

#include "cpu/simd/vector.h"

namespace encoder_engine {
namespace EE_ISA {

// The widest tile, in vectors, and the rows of a tile whose sums and operands fit the registers.
constexpr int kMostColumns = kRegisters == 32 ? 4 : 2;
constexpr int rows_beside(int columns) {
#if defined(EE_NEON)
    return least(8, (kRegisters - 2) / (columns + 1));  // an operand of each row, and one of the columns
#else
    return least(8, (kRegisters - columns - 2) / columns);
#endif
}

// Operands whose words are multiplied whole; others take a word in kParts steps.
struct whole_words {
    static constexpr int kParts = 1;
    template <int>
    EE_INLINE static vfloat take_part(vfloat word) {
        return word;
    }
};

// Words that hold several elements: no floats, so that they are copied as integers.
struct packed_words : whole_words {
    EE_INLINE static vfloat broadcast_word(const float* from) {
        uint32_t word;
        std::memcpy(&word, from, sizeof(word));
        return as_float(broadcast(word));
    }
};

// Calls body with number<0> to number<Count - 1>.
template <int Count, int Done = 0, typename Body>
EE_INLINE void for_numbers(const Body& body) {
    if constexpr (Done < Count) {
        body(number<Done>{});
        for_numbers<Count, Done + 1>(body);
    }
}

// The default for `between`: does nothing.
struct nothing {
    EE_INLINE void operator()(int64_t) const {}
};

#if defined(EE_NEON)

// multiply() of rows whose words lie side by side, a vector of each row at a time: NEON multiplies by a lane, and
// one load of a row serves four products. Returns the number of steps taken, all but the last few.
template <typename Operands, int Ahead, int Rows, int Columns, typename Between>
EE_INLINE int64_t multiply_by_lane(const float* left, const int64_t (&row_offsets)[Rows], const float* right,
                                   int64_t right_step, int64_t steps, vfloat (&sums)[Rows][Columns],
                                   const Between& between) {
    constexpr int kSteps = kLanes / Operands::kParts;
    int64_t done = 0;
    for (; done + kSteps <= steps; done += kSteps, left += kLanes) {
        vfloat factors[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) factors[r] = load(left + row_offsets[r]);
        for_numbers<kSteps>([&](auto step) EE_INLINED {
            constexpr int kFirst = decltype(step)::value * Operands::kParts;
            if constexpr (Ahead > 0) __builtin_prefetch(right + Ahead * right_step);
            between(done + decltype(step)::value);
            for_numbers<Operands::kParts>([&](auto part) EE_INLINED {
                constexpr int kPart = decltype(part)::value;
#pragma GCC unroll 8
                for (int c = 0; c < Columns; ++c) {
                    const vfloat beside = Operands::template take_part<kPart>(load(right + c * kLanes));
#pragma GCC unroll 8
                    for (int r = 0; r < Rows; ++r) {
                        sums[r][c] = Operands::template multiply_lane<kFirst + kPart>(factors[r], beside, sums[r][c]);
                    }
                }
            });
            right += right_step;
        });
    }
    return done;
}

// multiply() of rows whose words of one step lie side by side.
template <typename Operands, int Rows, int Columns>
EE_INLINE void multiply_turned(const float* left, int64_t left_step, const float* right, int64_t right_step,
                               int64_t steps, vfloat (&sums)[Rows][Columns]) {
    // The last vector begins earlier where the rows do not fill it.
    constexpr int kLast = Rows < kLanes ? 0 : Rows - kLanes;
    for (; steps > 0; --steps, left += left_step, right += right_step) {
        vfloat factors[2] = {};
        std::memcpy(&factors[0], left, least(Rows, kLanes) * sizeof(float));
        if constexpr (kLast > 0) factors[1] = load(left + kLast);
#pragma GCC unroll 8
        for (int c = 0; c < Columns; ++c) {
            const vfloat beside = load(right + c * kLanes);
            for_numbers<Rows>([&](auto row) EE_INLINED {
                constexpr int r = decltype(row)::value;
                constexpr int kVector = r < kLanes ? 0 : 1;
                sums[r][c] = Operands::template multiply_lane<r - kVector * kLast>(factors[kVector], beside, sums[r][c]);
            });
        }
    }
}

#endif

// sums[r][c] += left[r][step] * right[step][c] over `steps`, in that order, with between(step) among
// them; right is fetched `Ahead` steps before. Operands says what the words of left and right hold, and
// multiplies them, part by part: one part of the right words is in registers at a time.
template <typename Operands, int Ahead = 0, int Rows, int Columns, typename Between = nothing>
EE_INLINE void multiply(const float* left, int64_t left_row, int64_t left_step, const float* right,
                        int64_t right_step, int64_t steps, vfloat (&sums)[Rows][Columns],
                        const Between& between = {}) {
    int64_t row_offsets[Rows];
    for (int r = 0; r < Rows; ++r) {
        row_offsets[r] = r * left_row;
#if defined(__clang__)
        // Kept in a register: Clang 22 would compute each anew in every step.
        __asm__("" : "+r"(row_offsets[r]));
#endif
    }
    int64_t step = 0;
#if defined(EE_NEON)
    // Both are known when the function is inlined.
    if (left_step == Operands::kParts) {
        step = multiply_by_lane<Operands, Ahead>(left, row_offsets, right, right_step, steps, sums, between);
        left += step * left_step;
        right += step * right_step;
    } else if (Operands::kParts == 1 && left_row == 1) {
        multiply_turned<Operands>(left, left_step, right, right_step, steps, sums);
        return;
    }
#endif
    for (; step < steps; ++step) {
        if constexpr (Ahead > 0) {
#pragma GCC unroll 8
            for (int c = 0; c < Columns; c += 16 / kLanes) {
                __builtin_prefetch(right + Ahead * right_step + c * kLanes);
            }
        }
        between(step);
        for_numbers<Operands::kParts>([&](auto part) EE_INLINED {
            constexpr int kPart = decltype(part)::value;
            vfloat beside[Columns];
#pragma GCC unroll 8
            for (int c = 0; c < Columns; ++c) {
                beside[c] = Operands::template take_part<kPart>(load(right + c * kLanes));
            }
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const vfloat factor = Operands::broadcast_word(left + row_offsets[r] + kPart);
#pragma GCC unroll 8
                for (int c = 0; c < Columns; ++c) {
                    sums[r][c] = Operands::multiply_add(factor, beside[c], sums[r][c]);
                }
            }
        });
        left += left_step;
        right += right_step;
    }
}

// Calls body(first, number<rows>) for tiles that cover `count` rows beside `Columns` vectors.
template <int Columns, typename Body>
EE_INLINE void for_each_tile(int64_t count, const Body& body) {
    constexpr int kRows = rows_beside(Columns);
    int64_t first = 0;
    for (; first + kRows <= count; first += kRows) body(first, number<kRows>{});
    if constexpr (kRows > 1) {
        if (first < count) {
            with_number<kRows - 1>(static_cast<int>(count - first),
                                   [&](auto rows) EE_INLINED { body(first, rows); });
        }
    }
}

// One step of the transposition: swaps bit `Step` of the row with that of the lane.
template <int Step, int... Lane>
EE_INLINE void exchange(vfloat& low, vfloat& high, lanes<Lane...>) {
    const vfloat a = low, b = high;
    low = __builtin_shufflevector(a, b, (Lane & Step ? kLanes + Lane - Step : Lane)...);
    high = __builtin_shufflevector(a, b, (Lane & Step ? kLanes + Lane : Lane + Step)...);
}

template <int Step = 1>
EE_INLINE void transpose(vfloat (&rows)[kLanes]) {
#pragma GCC unroll 16
    for (int r = 0; r < kLanes; ++r) {
        if ((r & Step) == 0) exchange<Step>(rows[r], rows[r + Step], all_lanes{});
    }
    if constexpr (2 * Step < kLanes) transpose<2 * Step>(rows);
}

}  // namespace EE_ISA
}  // namespace encoder_engine
