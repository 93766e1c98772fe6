// A plan: operations on the rows of a batch, run in one call. Between two operations the Python
// interpreter would take longer than a short text's matrix products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "cpu/attention.h"
#include "cpu/packed_linear.h"
#include "cpu/quantized_linear.h"
#include "cpu/rows.h"

namespace encoder_engine {

struct plan_batch {
    const void* input;          // [rows, ..]
    void* output;               // [rows, ..]
    const int32_t* cu_seqlens;  // [sequences + 1]
    const int32_t* positions;   // [rows]; null where no step turns heads
    int64_t num_sequences, num_rows;
    int num_threads;  // at most
};

// Steps read and write buffers with one row per token. When a call is added, its fields that depend
// on the batch are null or 0; run() fills them in. Several threads may run a plan at a time.
class plan {
public:
    using buffer = int;
    static constexpr buffer kInput = 0, kOutput = 1, kNone = -1;

    // Adds a buffer of `row_bytes` per row. Its content lasts until another step writes it.
    buffer add_buffer(int64_t row_bytes);

    void add(const packed_linear_call& call, buffer input, buffer output);
    // `input` holds bytes, `input_scales` their scales. The result is either `output` or
    // `quantized` with `scales`.
    void add(const quantized_linear_call& call, buffer input, buffer input_scales, buffer output,
             buffer quantized, buffer scales);
    void add(const norm_call& call, buffer input, buffer residual, buffer sum, buffer output,
             buffer quantized, buffer scales);
    void add(const quantize_call& call, buffer input, buffer output, buffer scales);
    void add(const activation_call& call, buffer input, buffer output);
    void add(const sum_call& call, buffer input, buffer other, buffer output);
    // Turns the first heads of each row in place.
    void add(const rotary_call& call, buffer heads);
    // A row of the input holds a token's query, key and value.
    void add(const attention_call& call, buffer input, buffer output);

    void run(const plan_batch& batch) const;

private:
    struct rows;
    struct freed {
        void operator()(void* memory) const;
    };
    struct memory {
        std::unique_ptr<void, freed> content;
        size_t bytes = 0;
    };

    std::vector<int64_t> row_bytes_;
    std::vector<std::function<void(const rows&)>> steps_;
    mutable std::mutex mutex_;
    mutable std::vector<memory> idle_;

    memory take(size_t bytes) const;
    void give_back(memory&& taken) const;
};

}  // namespace encoder_engine
