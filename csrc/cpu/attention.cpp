// Cuts attention into pieces, which threads take from a shared counter, the longest sequences first.
#include "cpu/attention.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "common/parallel.h"
#include "cpu/kernels.h"
#include "cpu/scratch.h"

namespace encoder_engine {
namespace {

// Below this many multiplications a thread costs more than it saves.
constexpr int64_t kWorkPerThread = 1 << 19;
// Keys and values are packed for each piece: a piece has enough queries to amortise that.
constexpr int64_t kMostQueryBlocks = 8;
constexpr int64_t kPiecesPerThread = 8;

struct cut_sequence {
    int64_t first_row, length;
    int64_t first_piece;  // of head 0; the pieces of a head lie side by side
};

}  // namespace

void attention(const attention_call& call) {
    const attention_kernel& kernel = kernels().attention[static_cast<int>(call.type)];
    std::vector<cut_sequence> sequences;
    sequences.reserve(static_cast<size_t>(call.num_sequences));
    int64_t blocks = 0, work = 0, longest = 0;
    for (int64_t i = 0; i < call.num_sequences; ++i) {
        const int64_t first = call.cu_seqlens[i], length = call.cu_seqlens[i + 1] - first;
        if (length == 0) continue;
        sequences.push_back({first, length, 0});
        blocks += (length + kernel.query_block - 1) / kernel.query_block * call.num_heads;
        const int64_t seen = call.window < 0 ? length : std::min(length, 2 * call.window + 1);
        work += 2 * length * seen * call.head_dim * call.num_heads;
        longest = std::max(longest, length);
    }
    const int num_threads = team_size(work / kWorkPerThread, call.num_threads);
    const int64_t piece_blocks =
        std::clamp<int64_t>(blocks / (num_threads * kPiecesPerThread), 1, kMostQueryBlocks);
    const int64_t piece_queries = piece_blocks * kernel.query_block;

    std::stable_sort(sequences.begin(), sequences.end(),
                     [](const auto& a, const auto& b) { return a.length > b.length; });
    int64_t num_pieces = 0;
    for (cut_sequence& sequence : sequences) {
        sequence.first_piece = num_pieces;
        num_pieces += (sequence.length + piece_queries - 1) / piece_queries * call.num_heads;
    }

    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_parallel(num_threads, [&] {
        void* scratch = thread_scratch(kernel.scratch_bytes(call, longest));
        if (scratch == nullptr) {
            out_of_memory = true;
            return;
        }
        auto sequence = sequences.begin();
        for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < num_pieces;) {
            while (sequence + 1 != sequences.end() && sequence[1].first_piece <= piece) ++sequence;
            const int64_t per_head = (sequence->length + piece_queries - 1) / piece_queries;
            const int64_t within = piece - sequence->first_piece;
            const int64_t first_query = within % per_head * piece_queries;
            kernel.run(call,
                       {sequence->first_row, sequence->length, within / per_head, first_query,
                        std::min(first_query + piece_queries, sequence->length)},
                       scratch);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

}  // namespace encoder_engine
