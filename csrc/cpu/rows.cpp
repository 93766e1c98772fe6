// Shares rows among threads in chunks, from a shared counter.
#include "cpu/rows.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <stdexcept>

#include "common/parallel.h"
#include "cpu/kernels.h"
#include "cpu/scratch.h"

namespace encoder_engine {
namespace {

// Elements of a chunk: some microseconds of work.
constexpr int64_t kChunk = 1 << 14;

// `row_size`: how many elements a row takes, on average. `width`: elements of the scratch row.
template <typename Call>
void share_rows(const Call& call, row_kernel<Call> run, int64_t row_size, int64_t width) {
    const int64_t rows = std::max<int64_t>(1, kChunk / std::max<int64_t>(1, row_size));
    const int64_t num_chunks = (call.num_rows + rows - 1) / rows;
    const int num_threads = team_size(num_chunks / 2, call.num_threads);
    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_parallel(num_threads, [&] {
        // One row in float32, whole vectors of the widest.
        void* scratch = thread_scratch((static_cast<size_t>(width) + 16) * sizeof(float));
        if (scratch == nullptr) {
            out_of_memory = true;
            return;
        }
        for (int64_t chunk; (chunk = next.fetch_add(1, std::memory_order_relaxed)) < num_chunks;) {
            run(call, chunk * rows, std::min((chunk + 1) * rows, call.num_rows),
                static_cast<float*>(scratch));
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

template <typename Call>
void share_rows(const Call& call, row_kernel<Call> run) {
    share_rows(call, run, call.width, call.width);
}

void check_ids(const embedding_table& table, int64_t num_rows) {
    if (table.content == nullptr || table.ids == nullptr) return;
    bool fit = true;
    for (int64_t row = 0; row < num_rows; ++row) {
        fit &= table.ids[row] >= 0 && table.ids[row] < table.num_rows;
    }
    if (!fit) throw std::out_of_range("an id lies outside of its embedding table");
}

}  // namespace

void normalize_rows(const norm_call& call) {
    share_rows(call, kernels().normalize[static_cast<int>(call.type)]);
}

void normalize_heads(const head_norm_call& call) {
    // The kernel of whole rows, so that a head has the bits of a row.
    const auto normalize = [](const head_norm_call& now, int64_t first, int64_t last, float* scratch) {
        norm_call heads{};
        heads.type = now.type;
        heads.weight = now.weight;
        heads.bias = now.bias;
        heads.num_rows = now.num_heads;
        heads.width = now.width;
        heads.epsilon = now.epsilon;
        heads.centred = now.centred;
        for (int64_t row = first; row < last; ++row) {
            heads.output = static_cast<char*>(now.heads) + row * now.row_stride * element_bytes(now.type);
            heads.input = heads.output;
            kernels().normalize[static_cast<int>(now.type)](heads, 0, now.num_heads, scratch);
        }
    };
    share_rows<head_norm_call>(call, normalize, call.num_heads * call.width, call.width);
}

void embed_rows(const embedding_call& call) {
    for (const embedding_table* table : {&call.tokens, &call.positions, &call.segments}) {
        check_ids(*table, call.num_rows);
    }
    share_rows(call, kernels().embed[static_cast<int>(call.type)]);
}

void pool_rows(const pooling_call& call) {
    const int64_t length = call.num_rows == 0 ? 0 : call.cu_seqlens[call.num_rows] / call.num_rows;
    share_rows(call, kernels().pool[static_cast<int>(call.type)], (length + 1) * call.width, call.width);
}

void mean_static_rows(const static_call& call) {
    const int64_t num_tokens = call.num_rows == 0 ? 0 : call.cu_seqlens[call.num_rows];
    check_ids({call.table, call.ids, call.num_ids}, num_tokens);
    const int64_t length = call.num_rows == 0 ? 0 : num_tokens / call.num_rows;
    share_rows(call, kernels().static_mean[static_cast<int>(call.type)], (length + 1) * call.width,
               call.width);
}

void activate_rows(const activation_call& call) {
    share_rows(call, kernels().activate[static_cast<int>(call.type)]);
}

void add_rows(const sum_call& call) {
    share_rows(call, kernels().add[static_cast<int>(call.type)]);
}

void rotate_rows(const rotary_call& call) {
    share_rows(call, kernels().rotate[static_cast<int>(call.type)]);
}

void quantize_rows(const quantize_call& call) {
    share_rows(call, kernels().quantize[static_cast<int>(call.type)]);
}

void add_softmax_sums(const softmax_sum_call& call) {
    share_rows(call, kernels().add_softmax_sums[static_cast<int>(call.type)], call.width, 0);
}

void take_rows(const take_call& call) {
    const auto copy = [](const take_call& now, int64_t first, int64_t last, float*) {
        const size_t size = static_cast<size_t>(now.row_bytes);
        const int64_t input_row_bytes = now.input_row_bytes == 0 ? now.row_bytes : now.input_row_bytes;
        const char* const input = static_cast<const char*>(now.input) + now.first;
        for (int64_t row = first; row < last; ++row) {
            std::memcpy(static_cast<char*>(now.output) + row * now.row_bytes,
                        input + now.rows[row] * input_row_bytes, size);
        }
    };
    share_rows<take_call>(call, copy, call.row_bytes / 4, 0);
}

void put_rows(const take_call& call) {
    const auto copy = [](const take_call& now, int64_t first, int64_t last, float*) {
        const size_t size = static_cast<size_t>(now.row_bytes);
        for (int64_t row = first; row < last; ++row) {
            std::memcpy(static_cast<char*>(now.output) + now.rows[row] * now.row_bytes,
                        static_cast<const char*>(now.input) + row * now.row_bytes, size);
        }
    };
    share_rows<take_call>(call, copy, call.row_bytes / 4, 0);
}

void take_neighbours(const neighbours_call& call) {
    const auto copy = [](const neighbours_call& now, int64_t first, int64_t last, float*) {
        const size_t size = static_cast<size_t>(now.row_bytes);
        const int32_t* const ends = now.cu_seqlens + 1;
        const int64_t reach = now.kernel_size / 2;
        int64_t sequence = std::upper_bound(ends, ends + now.num_sequences, first) - ends;
        char* to = static_cast<char*>(now.output) + first * now.kernel_size * now.row_bytes;
        for (int64_t row = first; row < last; ++row) {
            while (row >= ends[sequence]) ++sequence;
            for (int64_t from = row - reach; from <= row + reach; ++from, to += now.row_bytes) {
                if (from >= now.cu_seqlens[sequence] && from < ends[sequence]) {
                    std::memcpy(to, static_cast<const char*>(now.input) + from * now.row_bytes, size);
                } else {
                    std::memset(to, 0, size);
                }
            }
        }
    };
    share_rows<neighbours_call>(call, copy, call.kernel_size * call.row_bytes / 4, 0);
}

}  // namespace encoder_engine
