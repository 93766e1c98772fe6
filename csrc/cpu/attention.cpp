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
// Distance vectors are multiplied by all keys of a piece: a sequence is cut as little as possible.
constexpr int64_t kLeastDistanceQueries = 512;
constexpr int64_t kPiecesPerThread = 8;

struct cut_sequence {
    attention_piece whole;  // of head 0
    int64_t num_queries;
    int64_t first_piece;  // of head 0; the pieces of a head lie side by side
};

// The entries of distance vectors that sequences of `num_places` meet.
int64_t num_distances(const attention_call& call, int64_t num_places) {
    const distance_vectors& distances = call.distances;
    if (distances.entries == nullptr || num_places == 0) return 0;
    const int64_t reach = std::min(num_places - 1, distances.reach);
    const int32_t* const middle = distances.entries + distances.reach;
    const auto [least, most] = std::minmax_element(middle - reach, middle + reach + 1);
    return *most - *least + 1;
}

}  // namespace

void attention(const attention_call& call) {
    const attention_kernel& kernel = kernels().attention[static_cast<int>(call.type)];
    std::vector<cut_sequence> sequences;
    sequences.reserve(static_cast<size_t>(call.num_sequences));
    attention_sizes most{0, 0, 0};
    int64_t blocks = 0, work = 0, num_places = 0;
    for (int64_t i = 0; i < call.num_sequences; ++i) {
        const int64_t first = call.cu_seqlens[i], length = call.cu_seqlens[i + 1] - first;
        const int32_t* const starts = call.cu_queries == nullptr ? call.cu_seqlens : call.cu_queries;
        const int64_t num_queries = starts[i + 1] - starts[i];
        if (num_queries == 0) continue;
        attention_piece whole{};
        whole.first_row = first;
        whole.length = length;
        whole.first_query_row = starts[i];
        if (call.global_rows != nullptr) {
            whole.global_rows = call.global_rows + call.cu_global[i];
            whole.num_global = call.cu_global[i + 1] - call.cu_global[i];
        }
        sequences.push_back({whole, num_queries, 0});
        blocks += (num_queries + kernel.query_block - 1) / kernel.query_block * call.num_heads;
        const int64_t seen = call.window < 0 ? length : std::min(length, 2 * call.window + 1);
        work += 2 * num_queries * (seen + whole.num_global) * call.head_dim * call.num_heads;
        most.length = std::max(most.length, length);
        // The last query may lie beyond the last key.
        const int64_t last_row = starts[i] + num_queries - 1;
        const int64_t last_place = call.query_rows == nullptr ? length - 1 : call.query_rows[last_row] - first;
        num_places = std::max({num_places, length, last_place + 1});
        most.num_global = std::max(most.num_global, whole.num_global);
    }
    most.num_distances = num_distances(call, num_places);
    const int num_threads = team_size(work / kWorkPerThread, call.num_threads);
    const int64_t piece_blocks =
        most.num_distances > 0
            ? kLeastDistanceQueries / kernel.query_block
            : std::clamp<int64_t>(blocks / (num_threads * kPiecesPerThread), 1, kMostQueryBlocks);
    const int64_t piece_queries = piece_blocks * kernel.query_block;

    std::stable_sort(sequences.begin(), sequences.end(),
                     [](const auto& a, const auto& b) { return a.whole.length > b.whole.length; });
    const auto pieces_of_head = [&](const cut_sequence& sequence) {
        return (sequence.num_queries + piece_queries - 1) / piece_queries;
    };
    int64_t num_pieces = 0;
    for (cut_sequence& sequence : sequences) {
        sequence.first_piece = num_pieces;
        num_pieces += pieces_of_head(sequence) * call.num_heads;
    }

    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_parallel(num_threads, [&] {
        void* scratch = thread_scratch(kernel.scratch_bytes(call, most));
        if (scratch == nullptr) {
            out_of_memory = true;
            return;
        }
        auto sequence = sequences.begin();
        for (int64_t number; (number = next.fetch_add(1, std::memory_order_relaxed)) < num_pieces;) {
            while (sequence + 1 != sequences.end() && sequence[1].first_piece <= number) ++sequence;
            const int64_t per_head = pieces_of_head(*sequence);
            const int64_t within = number - sequence->first_piece;
            attention_piece piece = sequence->whole;
            piece.head = within / per_head;
            piece.first_query = within % per_head * piece_queries;
            piece.last_query = std::min(piece.first_query + piece_queries, sequence->num_queries);
            kernel.run(call, piece, most, scratch);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

}  // namespace encoder_engine
