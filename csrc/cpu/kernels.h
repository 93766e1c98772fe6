// The table of kernels of one instruction set, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/attention.h"
#include "cpu/linear_pieces.h"
#include "cpu/packed_linear.h"
#include "cpu/quantized_linear.h"
#include "cpu/rows.h"
#include "cpu/static_rows.h"

namespace encoder_engine {

// The largest sizes of one sequence's arrays in the scratch memory.
struct attention_sizes {
    int64_t length, num_global;
    int64_t num_distances;  // entries of distance vectors
};

// A range of queries of one head of one sequence; rows count from the tensors' beginnings.
struct attention_piece {
    int64_t first_row, length;  // the sequence
    int64_t first_query_row;    // its first query, of the query and the output
    const int32_t* global_rows;
    int64_t num_global;
    int64_t head;
    int64_t first_query, last_query;  // within the sequence's queries
};

struct attention_kernel {
    int query_block;  // pieces begin at multiples of it
    size_t (*scratch_bytes)(const attention_call&, const attention_sizes&);
    void (*run)(const attention_call&, const attention_piece&, const attention_sizes&,
                void* scratch);  // 64-byte aligned
};

struct quantized_linear_kernel {
    size_t (*scratch_bytes)(const quantized_linear_call&, int64_t num_rows);
    void (*run)(const quantized_linear_call&, const linear_piece&, void* scratch);  // aligned
};

struct packed_linear_kernel {
    int64_t row_unit;  // of a piece
    size_t (*scratch_bytes)(const packed_linear_call&, int64_t num_rows);
    void (*run)(const packed_linear_call&, const linear_piece&, void* scratch);  // aligned
};

// Computes rows [first, last); `scratch` holds one row in float32.
template <typename Call>
using row_kernel = void (*)(const Call&, int64_t first, int64_t last, float* scratch);

// Each by element type.
struct kernel_table {
    attention_kernel attention[2];
    row_kernel<norm_call> normalize[2];
    row_kernel<embedding_call> embed[2];
    row_kernel<pooling_call> pool[2];
    row_kernel<static_call> static_mean[4];  // by table_type
    row_kernel<activation_call> activate[2];
    row_kernel<sum_call> add[2];
    row_kernel<rotary_call> rotate[2];
    row_kernel<quantize_call> quantize[2];
    row_kernel<softmax_sum_call> add_softmax_sums[2];
    quantized_linear_kernel quantized_linear[2];
    packed_linear_kernel packed_linear[2];
};

// The table for the instruction set that was chosen when the module was loaded.
const kernel_table& kernels();

extern const kernel_table portable_kernels;
#if defined(__x86_64__)
extern const kernel_table avx2_kernels;
extern const quantized_linear_kernel avx_vnni_quantized_linear[2];
extern const kernel_table avx512_kernels;
extern const kernel_table avx512_bf16_kernels;
extern const kernel_table amx_kernels;
#elif defined(__aarch64__)
extern const kernel_table neon_kernels;
extern const kernel_table dotprod_kernels;
extern const kernel_table bf16_kernels;
#endif

}  // namespace encoder_engine
