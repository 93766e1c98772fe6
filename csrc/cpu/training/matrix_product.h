// The matrix products of training: a dense layer's output, and the gradients of its input and weight.
#pragma once

#include <cstdint>

#include "cpu/element.h"
#include "cpu/weight_panels.h"

namespace encoder_engine {

// A matrix in memory, the elements of a row side by side. `turned`: each row holds the elements of
// one step of the sum, so that the sum runs down the columns.
struct matrix_operand {
    element_type type;
    bool turned;
    const void* data;
    int64_t stride;  // elements between rows

    const char* row(int64_t number) const {
        return static_cast<const char*>(data) + number * stride * (type == element_type::float32 ? 4 : 2);
    }
};

// output[r, c] = sum over d of left[r, d] right[c, d], plus bias[c]. Elements are multiplied as `type`
// and summed in float32.
struct matrix_product {
    element_type type;
    matrix_operand left;   // [rows, depth]; turned: [depth, rows]
    matrix_operand right;  // [columns, depth]; turned: [depth, columns]
    const float* bias;     // [columns]; null: none
    element_type output_type;
    void* output;  // [rows, columns], rows `output_stride` elements apart
    int64_t output_stride;
    bool adds;  // to an output in float32, instead of replacing it
    int64_t num_rows, num_columns, depth;
    int num_threads;  // at most
};

// A part of the product: all of `depth` from `first_depth`, for panels of the right matrix that are
// laid out from `panels` on.
struct product_part {
    int64_t first_depth, depth;
    int64_t first_panel, num_panels;
    bool adds;
    char* panels;
    const float* starts;  // [panels, kPanelWidth]: what the sums begin with
};

// A number's bits depend neither on how many threads there are nor on other rows and columns.
void multiply_matrices(const matrix_product& call);

}  // namespace encoder_engine
