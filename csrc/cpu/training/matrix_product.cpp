// Cuts products along the depth, lays out the right matrix by slabs of panels, and shares the pieces.
#include "cpu/training/matrix_product.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "common/parallel.h"
#include "cpu/linear_pieces.h"
#include "cpu/training/shared_scratch.h"
#include "cpu/training/training_kernels.h"

namespace encoder_engine {
namespace {

// Below this many multiplications a thread costs more than it saves.
constexpr int64_t kWorkPerThread = 1 << 20;
// Bytes of a slab, which every piece of rows reads from the L2 or L3 cache; more where the slab would
// have fewer than kColumnsPerRow columns a row, since rows are laid out again for each slab.
constexpr int64_t kSlabBytes = 2 << 20;
constexpr int64_t kColumnsPerRow = 4;
// Elements that are summed before the sum is added to a float32 output. A bfloat16 output is written
// once: it would be rounded each time.
constexpr int64_t kDepthBlock = 2048;

int64_t word_row_bytes(const matrix_product& call, int64_t depth) {
    return depth * (call.type == element_type::float32 ? 4 : 2);
}

void multiply_part(const matrix_product& call, const product_part& part, int num_threads) {
    const matrix_product_kernel& kernel = training_kernels().multiply_matrices[static_cast<int>(call.type)];
    const int64_t count = kernel.count_lay_outs(call, part);
    std::atomic<int64_t> next{0};
    run_parallel(count > 1 ? num_threads : 1, [&] {
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
            kernel.lay_out(call, part, i);
        }
    });
    run_pieces({call.num_rows, part.num_panels, rows_of_piece(word_row_bytes(call, part.depth)),
                kernel.row_unit, false, num_threads},
               [&](int64_t rows) { return kernel.scratch_bytes(call, part, rows); },
               [&](const linear_piece& piece, void* scratch) { kernel.run(call, part, piece, scratch); });
}

}  // namespace

void multiply_matrices(const matrix_product& call) {
    if (call.num_rows == 0 || call.num_columns == 0) return;
    const int64_t work = call.num_rows * call.num_columns * std::max<int64_t>(call.depth, 1);
    const int num_threads = team_size(work / kWorkPerThread, call.num_threads);
    const int64_t block =
        call.output_type == element_type::float32 ? std::min(kDepthBlock, call.depth) : call.depth;
    const int64_t panels = num_panels(call.num_columns);
    const int64_t bytes = panel_bytes(word_row_bytes(call, block));
    const int64_t slab = std::clamp<int64_t>(std::max(kSlabBytes / std::max<int64_t>(bytes, 1),
                                                      kColumnsPerRow * call.num_rows / kPanelWidth),
                                             1, panels);
    char* const memory = static_cast<char*>(
        shared_scratch(static_cast<size_t>(slab * (bytes + kPanelWidth * kWordBytes))));
    float* const starts = reinterpret_cast<float*>(memory + slab * bytes);
    for (int64_t depth = 0; depth == 0 || depth < call.depth; depth += kDepthBlock) {
        for (int64_t panel = 0; panel < panels; panel += slab) {
            const int64_t first = panel * kPanelWidth, count = std::min(slab, panels - panel);
            std::fill_n(starts, count * kPanelWidth, 0.0f);
            if (call.bias != nullptr && depth == 0) {
                std::memcpy(starts, call.bias + first,
                            static_cast<size_t>(std::min(count * kPanelWidth, call.num_columns - first)) *
                                sizeof(float));
            }
            multiply_part(call,
                          {depth, std::min(block, call.depth - depth), panel, count,
                           call.adds || depth > 0, memory, starts},
                          num_threads);
        }
        if (block == call.depth) break;
    }
}

}  // namespace encoder_engine
