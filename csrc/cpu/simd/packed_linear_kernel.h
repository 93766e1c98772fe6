// The packed GEMM in float32 and bfloat16: input rows by weight panels, with bias and activation.
//
// How it works: a thread takes a piece of rows and panels (linear_pieces.h). A panel is 64 output
// features wide and packed by words of the input features (weight_panels.h), so that the inner loop
// reads it contiguously. The sums of a tile of rows by one panel stay in registers over the whole depth;
// float32 begins them with the bias. The activation is applied to a panel's sums while they are in the
// cache, spread over the products of the next rows (row_finisher.h); of a gated layer, the panel of the
// second half is multiplied right after that of the first. A row is summed in an order that
// depends on neither the other rows nor the number of threads.
#pragma once

#include <type_traits>

#include "cpu/simd/activation_kernel.h"
#include "cpu/simd/float_products.h"
#include "cpu/kernels.h"
#include "cpu/simd/row_finisher.h"

namespace encoder_engine {
namespace EE_ISA {

// Offsets of a piece's arrays in the scratch memory, in bytes.
template <typename Products>
struct packed_linear_layout {
    // values: from sums[i] to the sums of the second half's panel.
    int64_t sums[2], values, rows, end;

    packed_linear_layout(const packed_linear_call& call, int64_t num_rows) {
        const int64_t filled_rows = whole(num_rows, Products::kBlockRows);
        sums[0] = 0;
        values = filled_rows * kPanelWidth * int64_t{sizeof(float)};
        sums[1] = call.gated ? 2 * values : values;
        rows = 2 * sums[1];
        end = rows + filled_rows * whole(call.row_bytes(), kDepthUnit) *
                         int64_t{sizeof(typename Products::Byte)};
    }
};

template <typename Element>
size_t packed_linear_scratch(const packed_linear_call& call, int64_t num_rows) {
    using Products = typename products_of<Element>::type;
    return static_cast<size_t>(packed_linear_layout<Products>(call, num_rows).end);
}

// Not inlined: a row has the same bits at every call site.
template <typename Element, typename Function>
EE_TILE void activate_sums(const float* sums, int64_t width, Element* output, const Function& function) {
    if (width >= kPanelWidth) {
#pragma GCC unroll 4
        for (int64_t at = 0; at < kPanelWidth; at += kLanes) {
            store_elements(output + at, function(load(sums + at)));
        }
    } else {
        for (int64_t at = 0; at < width; at += kLanes) {
            store_part(output, at, width, function(load(sums + at)));
        }
    }
}

// As activate_rows() of the sums as elements, of a whole panel.
template <typename Element, typename Function>
EE_TILE void gate_sums(const float* gates, const float* values, Element* output, const Function& function) {
#pragma GCC unroll 4
    for (int64_t at = 0; at < kPanelWidth; at += kLanes) {
        const vfloat gate = rounded<Element>(load(gates + at));
        store_elements(output + at, function(gate) * rounded<Element>(load(values + at)));
    }
}

template <typename Element, typename Function>
EE_INLINE void multiply_and_activate(const packed_linear_call& call, const linear_piece& piece,
                                     char* scratch, const Function& function, bool is_near) {
    using Products = typename products_of<Element>::type;
    using Byte = typename Products::Byte;
    const int64_t num_rows = piece.last_row - piece.first_row;
    const int64_t row_bytes = call.row_bytes(), filled = whole(row_bytes, kDepthUnit), width = call.width;
    const packed_linear_layout<Products> at(call, num_rows);
    const uint8_t* const weight = static_cast<const uint8_t*>(call.weight);
    const float* const starts =
        reinterpret_cast<const float*>(weight + num_panels(call.num_features()) * panel_bytes(row_bytes));
    const Element* const input = static_cast<const Element*>(call.input) + piece.first_row * call.depth;
    Element* const output = static_cast<Element*>(call.output) + piece.first_row * width;
    const auto sums_of = [=](int64_t panel) EE_INLINED {
        return reinterpret_cast<float*>(scratch + at.sums[panel % 2]);
    };
    Products::begin();
    const Byte* const rows =
        Products::lay_out(input, num_rows, row_bytes, reinterpret_cast<Byte*>(scratch + at.rows));
    const auto finish_row = [&](int64_t panel, int64_t row) {
        const int64_t feature = panel * kPanelWidth;
        const float* const sums = sums_of(panel) + row * kPanelWidth;
        Element* const to = output + row * width + feature;
        if (call.gated) {
            gate_sums(sums, sums + at.values / int64_t{sizeof(float)}, to, function);
        } else {
            activate_sums(sums, width - feature, to, function);
        }
    };
    row_finisher<decltype(finish_row)> finisher(finish_row);
    for (int64_t panel = piece.first_panel; panel < piece.last_panel; ++panel) {
        const int64_t feature = panel * kPanelWidth;
        if constexpr (std::is_same_v<Function, identity> && std::is_same_v<Element, float>) {
            // The sums are the output.
            if (feature + kPanelWidth <= width && !call.gated) {
                Products::multiply_to(rows, num_rows, weight + panel * panel_bytes(row_bytes), filled,
                                      starts + feature, sums_of(panel), output + feature, width);
                continue;
            }
        }
        float* sums = sums_of(panel);
        int64_t features = panel;
        if (call.gated) {
            pauses_of<decltype(finisher)> pauses{finisher};
            Products::multiply(rows, num_rows, weight + panel * panel_bytes(row_bytes), filled,
                               starts + feature, sums, pauses, is_near);
            sums += at.values / int64_t{sizeof(float)};
            features += num_panels(width);
        }
        finisher.begin(panel);
        Products::multiply(rows, num_rows, weight + features * panel_bytes(row_bytes), filled,
                           starts + features * kPanelWidth, sums, finisher, is_near);
    }
    finisher.rest();
    Products::end();
}

template <typename Element>
void run_packed_linear(const packed_linear_call& call, const linear_piece& piece, void* scratch) {
    using Products = typename products_of<Element>::type;
    // AMX tiles read rows as fast as the weight: where the weight stays in the L2 cache, rows are taken by
    // blocks that stay in L1.
    constexpr int64_t kMostWeight = 5 << 18;
    const bool by_blocks =
        Products::kTiled && panels_bytes(call.num_features(), call.row_bytes()) <= kMostWeight;
    with_activation<Element>(call.function, [&](const auto& function) {
        linear_piece part = piece;
        for (; part.first_row < piece.last_row; part.first_row = part.last_row) {
            if (by_blocks) part.last_row = least(part.first_row + Products::kBlockRows, piece.last_row);
            const bool is_near = part.first_row > piece.first_row;
            multiply_and_activate<Element>(call, part, static_cast<char*>(scratch), function, is_near);
        }
    });
}

template <typename Element>
constexpr packed_linear_kernel kPackedLinear = {products_of<Element>::type::kRowUnit,
                                                packed_linear_scratch<Element>,
                                                run_packed_linear<Element>};

}  // namespace EE_ISA
}  // namespace encoder_engine
