// Shares sequences and heads among threads, the longest sequences first.
#include "cpu/training/attention_gradient.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "common/parallel.h"
#include "cpu/scratch.h"
#include "cpu/training/shared_scratch.h"
#include "cpu/training/training_kernels.h"

namespace encoder_engine {
namespace {

// Below this many multiplications a thread costs more than it saves.
constexpr int64_t kWorkPerThread = 1 << 18;

}  // namespace

void attend_for_training(const attention_training_call& call) {
    const bool is_backward = call.is_backward();
    const attention_training_kernel& kernel = training_kernels().attend_for_training[static_cast<int>(call.type)];
    const int64_t entries = call.num_heads * (2 * call.bias_reach + 1);
    float* const partial =
        call.grad_bias == nullptr
            ? nullptr
            : static_cast<float*>(shared_scratch(
                  static_cast<size_t>(std::max<int64_t>(1, call.num_sequences) * entries) * sizeof(float)));
    if (partial != nullptr) std::fill_n(partial, call.num_sequences * entries, 0.0f);
    std::vector<attention_training_piece> pieces;
    attention_training_piece most{};
    int64_t work = 0;
    for (int64_t i = 0; i < call.num_sequences; ++i) {
        const int32_t* const starts = call.cu_queries == nullptr ? call.cu_seqlens : call.cu_queries;
        const int64_t first = call.cu_seqlens[i], length = call.cu_seqlens[i + 1] - first;
        const int64_t query = starts[i], num_queries = starts[i + 1] - query;
        if (num_queries == 0 && (!is_backward || length == 0)) continue;
        // Queries may lie beyond the last key.
        const int64_t last = num_queries == 0            ? 0
                             : call.query_rows == nullptr ? num_queries - 1
                                                          : call.query_rows[query + num_queries - 1] - first;
        float* const grad_bias = partial == nullptr ? nullptr : partial + i * entries;
        for (int64_t head = 0; head < call.num_key_heads; ++head) {
            pieces.push_back({i, first, length, query, num_queries, last, head, grad_bias});
        }
        most.length = std::max(most.length, length);
        most.num_queries = std::max(most.num_queries, num_queries);
        most.last_place = std::max(most.last_place, last);
        work += num_queries * length * call.head_dim * call.num_heads;
    }
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const auto& a, const auto& b) { return a.length > b.length; });
    const int64_t num_pieces = static_cast<int64_t>(pieces.size());
    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_parallel(team_size(work / kWorkPerThread, call.num_threads), [&] {
        void* const scratch = thread_scratch(kernel.scratch_bytes(call, most));
        if (scratch == nullptr) {
            out_of_memory = true;
            return;
        }
        for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_pieces;) {
            kernel.run(call, pieces[static_cast<size_t>(i)], scratch);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
    if (partial == nullptr) return;
    std::fill_n(call.grad_bias, entries, 0.0f);
    for (int64_t i = 0; i < call.num_sequences; ++i) {
        for (int64_t at = 0; at < entries; ++at) call.grad_bias[at] += partial[i * entries + at];
    }
}

}  // namespace encoder_engine
