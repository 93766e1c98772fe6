// Packs weights of float32 and bfloat16, and shares their GEMM among threads.
#include "cpu/packed_linear.h"

#include <algorithm>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/linear_pieces.h"

namespace encoder_engine {
namespace {

// Below this many multiplications a thread costs more than it saves, unless the weight is large.
constexpr int64_t kWorkPerThread = 1 << 20;

}  // namespace

void pack_linear(element_type type, const void* weight, const void* bias, int64_t width, int64_t depth,
                 void* packed, int num_threads) {
    const int64_t size = element_bytes(type);
    char* const starts =
        static_cast<char*>(lay_out_panels(weight, width, depth * size, packed, num_threads));
    if (bias == nullptr) return;
    for (int64_t i = 0; i < width; ++i) {
        // The upper bytes of a float32, which come last.
        std::memcpy(starts + (i + 1) * kWordBytes - size, static_cast<const char*>(bias) + i * size,
                    static_cast<size_t>(size));
    }
}

void packed_linear(const packed_linear_call& call) {
    if (call.num_rows == 0 || call.width == 0) return;
    const packed_linear_kernel& kernel = kernels().packed_linear[static_cast<int>(call.type)];
    const int64_t work = call.num_rows * call.depth * call.num_features();
    const int64_t weight_bytes = panels_bytes(call.num_features(), call.row_bytes());
    const int num_threads = team_size(std::max(work / kWorkPerThread, weight_bytes / kWeightPerThread),
                                      call.num_threads);
    run_pieces({call.num_rows, num_panels(call.width), rows_of_piece(call.row_bytes()), kernel.row_unit,
                false, num_threads},
               [&](int64_t rows) { return kernel.scratch_bytes(call, rows); },
               [&](const linear_piece& piece, void* scratch) { kernel.run(call, piece, scratch); });
}

}  // namespace encoder_engine
