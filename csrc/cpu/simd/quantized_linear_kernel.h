// The quantized GEMM: uint8 rows by int8 weight panels, with scale, bias, activation, and quantization.
//
// How it works: pieces and panels are those of the packed GEMM, with four bytes of depth in a word. Sums
// are exact in int32 (VNNI or AMX; pairs in 16 bits without). A row's bytes are unsigned with zero point
// 128: a panel's sums begin with -128 times the sum of the feature's weights. Of a gated layer, the panel
// of the first half is multiplied before that of the second. When a block's sums are there, each row is
// scaled, biased and activated in float32, and, for a quantized target, its maximum is found and its
// bytes are written, while the next block is multiplied.
#pragma once

#include "cpu/simd/activation_kernel.h"
#include "cpu/simd/byte_products.h"
#include "cpu/kernels.h"
#include "cpu/simd/norm_kernel.h"

namespace encoder_engine {
namespace EE_ISA {

// Offsets of a piece's arrays in the scratch memory, in bytes.
struct quantized_linear_layout {
    // gates: the sums of the panel that gates the other.
    int64_t sums, gates, rows, results, end;

    quantized_linear_layout(const quantized_linear_call& call, int64_t num_rows) {
        const int64_t filled_rows = whole(num_rows, byte_products::kBlockRows);
        const int64_t panel = filled_rows * kPanelWidth * int64_t{sizeof(int32_t)};
        sums = 0;
        gates = panel;
        rows = call.gated ? 2 * panel : panel;
        results = rows + filled_rows * whole(call.depth, kDepthUnit) * int64_t{sizeof(byte_products::Byte)};
        end = results;
        if (call.quantized != nullptr) {
            end += num_rows * whole(call.width, kPanelWidth) * int64_t{sizeof(float)};
        }
    }
};

inline size_t quantized_linear_scratch(const quantized_linear_call& call, int64_t num_rows) {
    return static_cast<size_t>(quantized_linear_layout(call, num_rows).end);
}

// The sums of a panel's rows, and what turns them into results.
struct panel_sums {
    const int32_t* sums;         // [rows, kPanelWidth]
    const float* weight_scales;  // [features of the panel]
    const float* bias;           // [features of the panel]; null: none

    // Calls body(take) with the function that takes a row's vector `at`.
    template <typename Body>
    EE_INLINE void take_from(int64_t at, int64_t width, const Body& body) const {
        const vfloat scale = load_part(weight_scales, at, width);
        const vfloat added = bias == nullptr ? vfloat{} : load_part(bias, at, width);
        body([=](int64_t row, float row_scale) EE_INLINED {
            const vfloat sum =
                __builtin_convertvector(load<vint>(sums + row * kPanelWidth + at), vfloat);
            return sum * (scale * row_scale) + added;
        });
    }
};

// Turns a block's sums into results [count, width], contiguous in `output`.
template <typename Element, typename Function>
EE_TILE void finish_block(const panel_sums& from, int64_t count, const float* row_scales, int64_t width,
                          Element* output, int64_t output_row, const Function& function) {
    for (int64_t at = 0; at < least(kPanelWidth, width); at += kLanes) {
        from.take_from(at, width, [&](const auto& take) EE_INLINED {
            for (int64_t row = 0; row < count; ++row) {
                store_part(output + row * output_row, at, width, function(take(row, row_scales[row])));
            }
        });
    }
}

// As activate_rows() of finish_block()'s results, of a whole panel, stored as elements or as float32.
template <typename Element, typename Output, typename Function>
EE_TILE void gate_block(const panel_sums& gates, const panel_sums& values, int64_t count,
                        const float* row_scales, Output* output, int64_t output_row,
                        const Function& function) {
    for (int64_t at = 0; at < kPanelWidth; at += kLanes) {
        gates.take_from(at, kPanelWidth, [&](const auto& gate) EE_INLINED {
            values.take_from(at, kPanelWidth, [&](const auto& value) EE_INLINED {
                for (int64_t row = 0; row < count; ++row) {
                    const float scale = row_scales[row];
                    const vfloat y = function(rounded<Element>(gate(row, scale))) *
                                     rounded<Element>(value(row, scale));
                    store_elements(output + row * output_row + at, rounded<Element>(y));
                }
            });
        });
    }
}

// Calls finish(first row, rows) when a block's sums are complete, with no work in between.
template <typename Finish>
struct block_finisher {
    const Finish& finish;
    EE_INLINE void operator()(int64_t first_row, int64_t num_rows) { finish(first_row, num_rows); }
    EE_INLINE void some(int64_t) {}
    EE_INLINE void rest() {}
};

template <bool Gated, typename Element, typename Function>
EE_INLINE void multiply_and_finish(const quantized_linear_call& call, const linear_piece& piece,
                                   char* scratch, const Function& function) {
    using Byte = byte_products::Byte;
    const int64_t num_rows = piece.last_row - piece.first_row;
    const int64_t filled = whole(call.depth, kDepthUnit), filled_width = whole(call.width, kPanelWidth);
    const quantized_linear_layout at(call, num_rows);
    float* const results = reinterpret_cast<float*>(scratch + at.results);
    const uint8_t* const weight = reinterpret_cast<const uint8_t*>(call.weight);
    const int32_t* const starts =
        reinterpret_cast<const int32_t*>(weight + num_panels(call.num_features()) * panel_bytes(call.depth));
    int32_t* const sums = reinterpret_cast<int32_t*>(scratch + at.sums);
    int32_t* const gates = reinterpret_cast<int32_t*>(scratch + at.gates);
    byte_products::begin();
    const Byte* const rows =
        byte_products::lay_out(call.input + piece.first_row * call.depth, num_rows, call.depth,
                               reinterpret_cast<Byte*>(scratch + at.rows));
    for (int64_t panel = piece.first_panel; panel < piece.last_panel; ++panel) {
        const int64_t feature = panel * kPanelWidth, width = call.width - feature;
        const auto multiply = [&](int64_t from, int32_t* to, const auto& finish) EE_INLINED {
            block_finisher<std::decay_t<decltype(finish)>> finisher{finish};
            byte_products::multiply(rows, num_rows, weight + from / kPanelWidth * panel_bytes(call.depth),
                                    filled, starts + from, to, finisher);
        };
        const auto sums_of = [&](const int32_t* from, int64_t row, int64_t first) EE_INLINED {
            return panel_sums{from + row * kPanelWidth, call.weight_scales + first,
                              call.bias == nullptr ? nullptr : call.bias + first};
        };
        if constexpr (Gated) multiply(feature, gates, [](int64_t, int64_t) EE_INLINED {});
        multiply(Gated ? call.width + feature : feature, sums, [&](int64_t row, int64_t count) EE_INLINED {
            const float* const scales = call.input_scales + piece.first_row + row;
            const auto finish = [&](auto* output, int64_t output_row) EE_INLINED {
                if constexpr (Gated) {
                    gate_block<Element>(sums_of(gates, row, feature), sums_of(sums, row, call.width + feature),
                               count, scales, output, output_row, function);
                } else {
                    finish_block(sums_of(sums, row, feature), count, scales, width, output, output_row,
                                 function);
                }
            };
            if (call.quantized != nullptr) {
                finish(results + row * filled_width + feature, filled_width);
            } else {
                finish(static_cast<Element*>(call.output) + (piece.first_row + row) * call.width + feature,
                       call.width);
            }
        });
    }
    byte_products::end();
    if (call.quantized == nullptr) return;
    for (int64_t row = 0; row < num_rows; ++row) {
        float* const result = results + row * filled_width;
        for (int64_t i = call.width; i < filled_width; ++i) result[i] = 0.0f;
        row_extent extent;
        for_each_vector(call.width, [&](int64_t i, int) EE_INLINED { extent.add(load(result + i)); });
        const int64_t place = piece.first_row + row;
        call.scales[place] =
            quantize_row(result, call.width, extent, call.quantized + place * call.width);
    }
}

template <typename Element>
void run_quantized_linear(const quantized_linear_call& call, const linear_piece& piece,
                          void* memory) {
    char* const scratch = static_cast<char*>(memory);
    if (call.gated) {
        with_activation<Element>(call.function, [&](const auto& function) {  // as activate_rows() does
            multiply_and_finish<true, Element>(call, piece, scratch, function);
        });
    } else {
        // The results of integers are as exact as those that are rounded to bfloat16.
        with_activation<bfloat16>(call.function, [&](const auto& function) {
            multiply_and_finish<false, Element>(call, piece, scratch, function);
        });
    }
}

template <typename Element>
constexpr quantized_linear_kernel kQuantizedLinear = {quantized_linear_scratch,
                                                      run_quantized_linear<Element>};

}  // namespace EE_ISA
}  // namespace encoder_engine
