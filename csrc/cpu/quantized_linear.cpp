// Packs weights of bytes, and shares their GEMM among threads.
#include "cpu/quantized_linear.h"

#include <algorithm>
#include <memory>

#include "cpu/kernels.h"
#include "cpu/linear_pieces.h"

namespace encoder_engine {
namespace {

// Below this many multiplications a thread costs more than it saves, unless the weight is large.
constexpr int64_t kWorkPerThread = 1 << 21;

void run_product(const quantized_linear_call& call, int num_threads) {
    const quantized_linear_kernel& kernel = kernels().quantized_linear[static_cast<int>(call.type)];
    const bool quantizes = call.quantized != nullptr;
    const int64_t row_bytes =
        call.depth + (quantizes ? whole(call.width, kPanelWidth) * int64_t{sizeof(float)} : 0);
    run_pieces({call.num_rows, num_panels(call.width), rows_of_piece(row_bytes), kLeastRows, quantizes,
                num_threads},
               [&](int64_t rows) { return kernel.scratch_bytes(call, rows); },
               [&](const linear_piece& piece, void* scratch) { kernel.run(call, piece, scratch); });
}

}  // namespace

void pack_weight(const int8_t* plain, int64_t width, int64_t depth, int8_t* packed, int num_threads) {
    int32_t* const corrections =
        static_cast<int32_t*>(lay_out_panels(plain, width, depth, packed, num_threads));
    for (int64_t feature = 0; feature < width; ++feature) {
        for (int64_t term = 0; term < depth; ++term) corrections[feature] -= 128 * *plain++;
    }
}

void quantized_linear(const quantized_linear_call& call) {
    if (call.num_rows == 0) return;
    const int64_t work = call.num_rows * call.depth * call.num_features();
    const int64_t weight_bytes = panels_bytes(call.num_features(), call.depth);
    const int num_threads = team_size(std::max(work / kWorkPerThread, weight_bytes / kWeightPerThread),
                                      call.num_threads);
    if (call.quantized == nullptr || call.num_rows >= num_threads * kLeastRows) {
        run_product(call, num_threads);
        return;
    }
    // Too few rows for the threads: they share the output features instead, and rows are quantized when
    // all of their features are there.
    const std::unique_ptr<float[]> output(new float[static_cast<size_t>(call.num_rows * call.width)]);
    quantized_linear_call floats = call;
    // A gated result is rounded before it is quantized.
    if (!call.gated) floats.type = element_type::float32;
    floats.output = output.get();
    floats.quantized = nullptr;
    run_product(floats, num_threads);
    quantize_rows({floats.type, output.get(), call.quantized, call.scales, call.num_rows,
                   call.width, num_threads});
}

}  // namespace encoder_engine
