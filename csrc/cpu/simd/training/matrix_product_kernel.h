// The matrix products of training, by the inner loops of the packed GEMM.
//
// How it works: the right matrix is laid out in panels of 64 columns, whatever its element type and
// orientation in memory (operand_words.h). A piece of rows is laid out likewise, unless it already lies
// as the inner loop reads it. The sums of a block of rows by a panel are then written, or added to what
// an earlier part of the depth wrote, while the next block is multiplied.
#pragma once

#include "cpu/simd/float_products.h"
#include "cpu/simd/row_finisher.h"
#include "cpu/simd/training/operand_words.h"
#include "cpu/training/training_kernels.h"

namespace encoder_engine {
namespace EE_ISA {

// Offsets of a piece's arrays in the scratch memory, in bytes.
template <typename Products>
struct product_layout {
    int64_t sums[2], words, rows, end;

    product_layout(int64_t filled, int64_t num_rows) {
        const int64_t filled_rows = whole(num_rows, whole(Products::kBlockRows, 16));
        sums[0] = 0;
        sums[1] = filled_rows * kPanelWidth * int64_t{sizeof(float)};
        words = 2 * sums[1];
        rows = words + filled_rows * filled;
        end = rows + filled_rows * filled * int64_t{sizeof(typename Products::Byte)};
    }
};

template <typename Element>
int64_t filled_bytes(int64_t depth) {
    return whole(depth * int64_t{sizeof(Element)}, kDepthUnit);
}

// Steps of a turned matrix that are laid out at a time, for all panels: its rows are read whole.
constexpr int64_t kLayOutWords = 32;

template <typename Element>
int64_t count_lay_outs(const matrix_product& call, const product_part& part) {
    const int64_t words = filled_bytes<Element>(part.depth) / kWordBytes;
    return call.right.turned ? (words + kLayOutWords - 1) / kLayOutWords : part.num_panels;
}

template <typename Element>
void lay_out_product_panels(const matrix_product& call, const product_part& part, int64_t number) {
    const int64_t words = filled_bytes<Element>(part.depth) / kWordBytes;
    float* const to = reinterpret_cast<float*>(part.panels);
    const int64_t first = part.first_panel * kPanelWidth;
    const int64_t count = least(part.num_panels * kPanelWidth, call.num_columns - first);
    if (call.right.turned) {
        const int64_t word = number * kLayOutWords;
        lay_out_panels<Element>(call.right, first, count, part.first_depth, part.depth, to, kPanelWidth,
                                words, word, least(word + kLayOutWords, words));
    } else {
        const int64_t at = number * kPanelWidth;
        lay_out_panels<Element>(call.right, first + at, least(kPanelWidth, count - at), part.first_depth,
                                part.depth, to + at * words, kPanelWidth, words, 0, words);
    }
}

template <typename Element>
size_t matrix_product_scratch(const matrix_product&, const product_part& part, int64_t num_rows) {
    using Products = typename products_of<Element>::type;
    return static_cast<size_t>(product_layout<Products>(filled_bytes<Element>(part.depth), num_rows).end);
}

template <typename Output>
EE_TILE void write_sums(const float* sums, int64_t width, bool adds, Output* output) {
    for (int64_t at = 0; at < least(width, kPanelWidth); at += kLanes) {
        vfloat x = load(sums + at);
        if (adds) x = x + load_part(output, at, width);
        store_part(output, at, width, x);
    }
}

template <typename Element, typename Output>
void run_product_block(const matrix_product& call, const product_part& part, const linear_piece& piece,
                       char* scratch, bool is_near) {
    using Products = typename products_of<Element>::type;
    using Byte = typename Products::Byte;
    const int64_t num_rows = piece.last_row - piece.first_row, filled = filled_bytes<Element>(part.depth);
    const product_layout<Products> at(filled, num_rows);
    const matrix_operand& left = call.left;
    const int64_t size = sizeof(Element);
    const bool lies_ready = !left.turned && (left.type == element_type::float32) == (size == 4) &&
                            left.stride == part.depth && filled == part.depth * size;
    Products::begin();
    const void* words = left.row(piece.first_row);
    if (!lies_ready) {
        float* const to = reinterpret_cast<float*>(scratch + at.words);
        lay_out_rows<Element, Products::kTiled>(left, piece.first_row, num_rows, part.first_depth,
                                                part.depth, to, filled / kWordBytes);
        words = to;
    }
    const Byte* rows;
    if (Products::kTiled && !lies_ready) {
        rows = static_cast<const Byte*>(words);
    } else {
        rows = Products::lay_out(words, num_rows, filled, reinterpret_cast<Byte*>(scratch + at.rows));
    }
    const auto sums_of = [=](int64_t panel) EE_INLINED {
        return reinterpret_cast<float*>(scratch + at.sums[panel % 2]);
    };
    const auto finish_row = [&](int64_t panel, int64_t row) {
        const int64_t column = (part.first_panel + panel) * kPanelWidth;
        write_sums(sums_of(panel) + row * kPanelWidth, call.num_columns - column, part.adds,
                   static_cast<Output*>(call.output) + (piece.first_row + row) * call.output_stride + column);
    };
    row_finisher<decltype(finish_row)> finisher(finish_row);
    for (int64_t panel = piece.first_panel; panel < piece.last_panel; ++panel) {
        finisher.begin(panel);
        Products::multiply(rows, num_rows,
                           reinterpret_cast<const uint8_t*>(part.panels) + panel * kPanelWidth * filled,
                           filled, part.starts + panel * kPanelWidth, sums_of(panel), finisher, is_near);
    }
    finisher.rest();
    Products::end();
}

template <typename Element, typename Output>
void run_product(const matrix_product& call, const product_part& part, const linear_piece& piece,
                 char* scratch) {
    using Products = typename products_of<Element>::type;
    // As in packed_linear_kernel.h: rows by blocks that stay in L1 where the panels stay in L2.
    constexpr int64_t kMostPanels = 5 << 18;
    const int64_t bytes = part.num_panels * kPanelWidth * filled_bytes<Element>(part.depth);
    const bool by_blocks = Products::kTiled && bytes <= kMostPanels;
    linear_piece block = piece;
    for (; block.first_row < piece.last_row; block.first_row = block.last_row) {
        if (by_blocks) block.last_row = least(block.first_row + Products::kBlockRows, piece.last_row);
        run_product_block<Element, Output>(call, part, block, scratch, block.first_row > piece.first_row);
    }
}

template <typename Element>
void run_matrix_product(const matrix_product& call, const product_part& part, const linear_piece& piece,
                        void* scratch) {
    if (call.output_type == element_type::float32) {
        run_product<Element, float>(call, part, piece, static_cast<char*>(scratch));
    } else {
        run_product<Element, bfloat16>(call, part, piece, static_cast<char*>(scratch));
    }
}

template <typename Element>
constexpr matrix_product_kernel kMatrixProduct = {
    products_of<Element>::type::kRowUnit, matrix_product_scratch<Element>, count_lay_outs<Element>,
    lay_out_product_panels<Element>, run_matrix_product<Element>};

}  // namespace EE_ISA
}  // namespace encoder_engine
