// Shares chunks of rows among threads, and adds their sums in order.
#include "cpu/training/row_gradients.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "common/parallel.h"
#include "cpu/scratch.h"
#include "cpu/training/shared_scratch.h"
#include "cpu/training/training_kernels.h"

namespace encoder_engine {
namespace {

// Elements for which a second thread is worth calling.
constexpr int64_t kWorkPerThread = 1 << 14;

// Calls run for the rows of each chunk. `row_size`: elements of a row, which set how many threads are
// worth it. `partial`: floats of each chunk's sums, begun with zeros; returns them.
template <typename Call>
float* share_chunks(const Call& call, chunk_kernel<Call> run, int64_t row_size, int64_t partial) {
    const int64_t num_chunks = (call.num_rows + kChunkRows - 1) / kChunkRows;
    float* const sums = static_cast<float*>(
        shared_scratch(static_cast<size_t>(std::max<int64_t>(1, num_chunks * partial)) * sizeof(float)));
    const int num_threads = team_size(call.num_rows * row_size / kWorkPerThread, call.num_threads);
    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_parallel(num_threads, [&] {
        void* const scratch = thread_scratch(static_cast<size_t>(2 * whole(row_size, 64) + 64) * sizeof(float));
        if (scratch == nullptr) {
            out_of_memory = true;
            return;
        }
        for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < num_chunks;) {
            float* const own = sums + chunk * partial;
            std::fill_n(own, partial, 0.0f);
            run(call, chunk * kChunkRows, std::min((chunk + 1) * kChunkRows, call.num_rows), own,
                static_cast<float*>(scratch));
        }
    });
    if (out_of_memory) throw std::bad_alloc();
    return sums;
}

// output = the sums of `width` columns of all chunks, `stride` floats apart.
void add_chunks(const float* sums, int64_t num_rows, int64_t stride, int64_t width, float* output) {
    if (output == nullptr) return;
    std::fill_n(output, width, 0.0f);
    for (int64_t row = 0; row < num_rows; row += kChunkRows, sums += stride) {
        for (int64_t at = 0; at < width; ++at) output[at] += sums[at];
    }
}

}  // namespace

void normalize_for_training(const norm_training_call& call) {
    const auto& kernel = training_kernels().normalize_for_training;
    const bool mixed = call.input_type != call.type;
    share_chunks(call, kernel[mixed ? 2 : static_cast<int>(call.type)], call.width, 0);
}

void norm_gradient(const norm_gradient_call& call) {
    const auto& kernel = training_kernels().norm_gradient;
    const bool mixed = call.input_type != call.type;
    // What was normalised is the input itself, of its own type.
    const bool is_input = mixed && call.summed_type == call.input_type;
    const int64_t stride = whole(call.width, 64);
    const float* const sums = share_chunks(
        call, kernel[is_input ? 3 : mixed ? 2 : static_cast<int>(call.type)], call.width, 2 * stride);
    add_chunks(sums, call.num_rows, 2 * stride, call.width, call.grad_weight);
    add_chunks(sums + stride, call.num_rows, 2 * stride, call.width, call.grad_bias);
}

void activation_gradient(const activation_gradient_call& call) {
    const int64_t width = call.gated ? 2 * call.width : call.width, stride = whole(width, 64);
    const float* const sums =
        share_chunks(call, training_kernels().activation_gradient[static_cast<int>(call.type)], width,
                     call.grad_bias == nullptr ? 0 : stride);
    add_chunks(sums, call.num_rows, stride, width, call.grad_bias);
}

void sum_columns(const column_sum_call& call) {
    const int64_t stride = whole(call.width, 64);
    const float* const sums =
        share_chunks(call, training_kernels().sum_columns[static_cast<int>(call.type)], call.width, stride);
    add_chunks(sums, call.num_rows, stride, call.width, call.output);
}

void drop_features(const dropout_call& call) {
    share_chunks(call, training_kernels().drop_features[static_cast<int>(call.type)], call.width, 0);
}

void cross_entropy_rows(const cross_entropy_call& call) {
    // Rows are long: a chunk of them would leave threads without work.
    const auto run = training_kernels().cross_entropy[static_cast<int>(call.type)];
    std::atomic<int64_t> next{0};
    run_parallel(team_size(call.num_rows * call.vocabulary / kWorkPerThread, call.num_threads), [&] {
        for (int64_t row; (row = next.fetch_add(1, std::memory_order_relaxed)) < call.num_rows;) {
            run(call, row, row + 1, nullptr, nullptr);
        }
    });
}

void add_table_rows(const table_gradient_call& call) {
    std::vector<std::pair<int32_t, int64_t>> order(static_cast<size_t>(call.num_rows));
    for (int64_t row = 0; row < call.num_rows; ++row) {
        order[static_cast<size_t>(row)] = {call.ids == nullptr ? 0 : call.ids[row], row};
    }
    std::sort(order.begin(), order.end());
    std::vector<size_t> starts;
    for (size_t i = 0; i < order.size(); ++i) {
        if (i == 0 || order[i].first != order[i - 1].first) starts.push_back(i);
    }
    starts.push_back(order.size());
    std::atomic<size_t> next{0};
    run_parallel(team_size(call.num_rows * call.width / kWorkPerThread, call.num_threads), [&] {
        for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) + 1 < starts.size();) {
            float* const to = call.table + order[starts[i]].first * call.width;
            for (size_t place = starts[i]; place < starts[i + 1]; ++place) {
                const int64_t row = order[place].second;
                training_kernels().add_row(call.rows + row * call.width,
                                  call.factors == nullptr ? 1.0f : call.factors[row], to, call.width);
            }
        }
    });
}

}  // namespace encoder_engine
