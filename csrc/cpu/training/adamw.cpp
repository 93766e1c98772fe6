// Cuts tensors into chunks, which threads take from a shared counter.
#include "cpu/training/adamw.h"

#include <algorithm>
#include <atomic>

#include "common/parallel.h"
#include "cpu/training/training_kernels.h"

namespace encoder_engine {
namespace {

struct tensor_chunk {
    size_t tensor;
    int64_t first, size;
};

template <typename Tensor>
std::vector<tensor_chunk> cut(const std::vector<Tensor>& tensors) {
    std::vector<tensor_chunk> chunks;
    for (size_t i = 0; i < tensors.size(); ++i) {
        for (int64_t first = 0; first < tensors[i].size; first += kOptimizerChunk) {
            chunks.push_back({i, first, std::min(kOptimizerChunk, tensors[i].size - first)});
        }
    }
    return chunks;
}

// Calls run(number) for all chunks.
template <typename Run>
void share(size_t count, int num_threads, const Run& run) {
    std::atomic<size_t> next{0};
    run_parallel(team_size(static_cast<int64_t>(count), num_threads), [&] {
        for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) run(i);
    });
}

}  // namespace

double sum_squares(const std::vector<float_span>& tensors, int num_threads) {
    const std::vector<tensor_chunk> chunks = cut(tensors);
    std::vector<double> sums(chunks.size());
    share(chunks.size(), num_threads, [&](size_t i) {
        sums[i] = training_kernels().sum_squares(tensors[chunks[i].tensor].data + chunks[i].first, chunks[i].size);
    });
    double total = 0.0;
    for (const double sum : sums) total += sum;
    return total;
}

void take_adamw_step(const adamw_call& call, const std::vector<adamw_tensor>& tensors) {
    const std::vector<tensor_chunk> chunks = cut(tensors);
    share(chunks.size(), call.num_threads, [&](size_t i) {
        adamw_tensor part = tensors[chunks[i].tensor];
        part.parameter += chunks[i].first;
        part.gradient += chunks[i].first;
        part.first += chunks[i].first;
        part.second += chunks[i].first;
        part.size = chunks[i].size;
        training_kernels().take_adamw_step(call, part);
    });
}

}  // namespace encoder_engine
