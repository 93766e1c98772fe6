// The table of training's kernels of one instruction set, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/linear_pieces.h"
#include "cpu/training/adamw.h"
#include "cpu/training/attention_gradient.h"
#include "cpu/training/matrix_product.h"
#include "cpu/training/row_gradients.h"

namespace encoder_engine {

struct matrix_product_kernel {
    int64_t row_unit;  // of a piece
    size_t (*scratch_bytes)(const matrix_product&, const product_part&, int64_t num_rows);
    int64_t (*count_lay_outs)(const matrix_product&, const product_part&);
    void (*lay_out)(const matrix_product&, const product_part&, int64_t number);
    void (*run)(const matrix_product&, const product_part&, const linear_piece&, void* scratch);  // aligned
};

struct attention_training_kernel {
    // `most`: the largest sizes of all pieces.
    size_t (*scratch_bytes)(const attention_training_call&, const attention_training_piece& most);
    void (*run)(const attention_training_call&, const attention_training_piece&, void* scratch);  // aligned
};

// Computes rows [first, last) of a chunk. `partial`: the chunk's sums; `scratch`: two rows in float32.
template <typename Call>
using chunk_kernel = void (*)(const Call&, int64_t first, int64_t last, float* partial, float* scratch);

// Each by element type, but for norms: those with an input of bfloat16 in a float32 stream come third,
// and fourth where that input is itself what was normalised.
struct training_table {
    matrix_product_kernel multiply_matrices[2];
    chunk_kernel<norm_training_call> normalize_for_training[3];
    chunk_kernel<norm_gradient_call> norm_gradient[4];
    chunk_kernel<activation_gradient_call> activation_gradient[2];
    chunk_kernel<column_sum_call> sum_columns[2];
    chunk_kernel<dropout_call> drop_features[2];
    chunk_kernel<cross_entropy_call> cross_entropy[2];
    attention_training_kernel attend_for_training[2];
    double (*sum_squares)(const float* from, int64_t size);
    void (*take_adamw_step)(const adamw_call&, const adamw_tensor&);
    void (*add_row)(const float* from, float factor, float* to, int64_t width);
};

// The table for the instruction set that was chosen when the module was loaded.
const training_table& training_kernels();

extern const training_table portable_training_kernels;
#if defined(__x86_64__)
extern const training_table avx2_training_kernels;
extern const training_table avx512_training_kernels;
extern const training_table avx512_bf16_training_kernels;
extern const training_table amx_training_kernels;
#elif defined(__aarch64__)
extern const training_table neon_training_kernels;
extern const training_table dotprod_training_kernels;
extern const training_table bf16_training_kernels;
#endif

}  // namespace encoder_engine
