// Lays weights out, cuts a product into rows and panels, and lets threads take them in turn.
#include "cpu/quantized_linear.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "common/parallel.h"
#include "cpu/kernels.h"
#include "cpu/scratch.h"

namespace encoder_engine {
namespace {

// Below this many multiplications a thread costs more than it saves.
constexpr int64_t kWorkPerThread = 1 << 21;
// Rows share what they read of the weights, as long as they stay in a core's cache.
constexpr int64_t kMostRows = 128;
constexpr int64_t kMostBytes = 1 << 20;
constexpr int64_t kRowUnit = 16;

int64_t parts_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// The place of a weight in its packed form.
int64_t place_of(int64_t feature, int64_t term, int64_t depth) {
    const int64_t panel = feature / kPanelWidth, within = feature % kPanelWidth;
    return panel * kPanelWidth * whole(depth, kDepthUnit) + term / kDepthGroup * kPanelWidth * kDepthGroup +
           within * kDepthGroup + term % kDepthGroup;
}

void run_pieces(const quantized_linear_call& call, int num_threads) {
    const quantized_linear_kernel& kernel = kernels().quantized_linear[static_cast<int>(call.type)];
    int64_t row_bytes = call.depth;
    if (call.quantized != nullptr) row_bytes += whole(call.width, kPanelWidth) * int64_t{sizeof(float)};
    const int64_t most_rows =
        std::clamp<int64_t>(kMostBytes / row_bytes / kRowUnit * kRowUnit, 2 * kRowUnit, kMostRows);
    int64_t row_parts = parts_of(call.num_rows, most_rows), panel_parts = 1;
    if (call.quantized != nullptr) {
        row_parts = whole(row_parts, num_threads);
    } else if (row_parts < num_threads) {
        panel_parts = std::min(parts_of(num_threads, row_parts), call.num_panels());
    }
    const int64_t rows = whole(parts_of(call.num_rows, row_parts), kRowUnit);
    row_parts = parts_of(call.num_rows, rows);
    const int64_t panels = parts_of(call.num_panels(), panel_parts);

    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_parallel(num_threads, [&] {
        void* scratch = thread_scratch(kernel.scratch_bytes(call, rows));
        if (scratch == nullptr) {
            out_of_memory = true;
            return;
        }
        const int64_t num_pieces = row_parts * panel_parts;
        for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < num_pieces;) {
            const int64_t row = piece / panel_parts * rows, panel = piece % panel_parts * panels;
            kernel.run(call,
                       {row, std::min(row + rows, call.num_rows), panel,
                        std::min(panel + panels, call.num_panels())},
                       scratch);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

}  // namespace

void pack_weight(const int8_t* plain, int64_t width, int64_t depth, int8_t* packed) {
    std::fill_n(packed, packed_weight_bytes(width, depth), int8_t{0});
    const int64_t filled = whole(width, kPanelWidth);
    int32_t* const corrections = reinterpret_cast<int32_t*>(packed + filled * whole(depth, kDepthUnit));
    for (int64_t feature = 0; feature < width; ++feature, plain += depth) {
        int32_t sum = 0;
        for (int64_t term = 0; term < depth; ++term) {
            packed[place_of(feature, term, depth)] = plain[term];
            sum += plain[term];
        }
        corrections[feature] = -128 * sum;
    }
}

void unpack_weight(const int8_t* packed, int64_t width, int64_t depth, int8_t* plain) {
    for (int64_t feature = 0; feature < width; ++feature) {
        for (int64_t term = 0; term < depth; ++term) *plain++ = packed[place_of(feature, term, depth)];
    }
}

void quantized_linear(const quantized_linear_call& call) {
    if (call.num_rows == 0) return;
    const int64_t work = call.num_rows * call.depth * call.width;
    const int num_threads = static_cast<int>(
        std::clamp<int64_t>(work / kWorkPerThread, 1, std::max(1, call.num_threads)));
    if (call.quantized == nullptr || call.num_rows >= num_threads * kRowUnit) {
        run_pieces(call, num_threads);
        return;
    }
    // Too few rows for the threads: they share the features out instead, and a row's bytes follow when
    // all of it is there.
    const std::unique_ptr<float[]> output(new float[static_cast<size_t>(call.num_rows * call.width)]);
    quantized_linear_call floats = call;
    floats.type = element_type::float32;
    floats.output = output.get();
    floats.quantized = nullptr;
    run_pieces(floats, num_threads);
    quantize_rows({element_type::float32, output.get(), call.quantized, call.scales, call.num_rows,
                   call.width, num_threads});
}

}  // namespace encoder_engine
