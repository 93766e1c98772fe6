// A plan: operations on the rows of a batch, run in one call. Between two operations the Python
// interpreter would take longer than a short text's matrix products.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "common/thread_pool.h"
#include "cpu/attention.h"
#include "cpu/packed_linear.h"
#include "cpu/quantized_linear.h"
#include "cpu/rows.h"

namespace encoder_engine {

// The domain of a buffer: it has one row per token, selected token, global token, sequence, or key.
// Keys are there where sequences share a prefix: a row for each token that a sequence sees, the
// prefix's own rows repeated in each.
enum class row_domain { tokens, selected, global, sequences, keys };

struct plan_batch {
    const void* input;          // [rows, ..]; null: the plan begins with ids
    void* output;               // [rows of its domain, ..]
    const int32_t* cu_seqlens;  // [sequences + 1]
    const int32_t* positions;   // [rows], of rotary embeddings; null where no step turns heads
    int64_t num_sequences, num_rows;
    int num_threads;  // at most
    const int32_t* ids = nullptr;           // [rows]; null where no step embeds
    const int32_t* type_ids = nullptr;      // [rows]; null: all 0
    const int32_t* position_ids = nullptr;  // [rows] of the position table; null: it has none
    const int32_t* selected_rows = nullptr;  // rising token rows; null where no step selects
    const int32_t* cu_selected = nullptr;    // [sequences + 1]: where each sequence's begin
    const int32_t* global_rows = nullptr;    // likewise, of tokens that all see beyond windows
    const int32_t* cu_global = nullptr;
    const float* token_scales = nullptr;     // [rows]; null where no step scales tokens
    const int32_t* key_tokens = nullptr;     // the token of each key; null where no step has keys
    const int32_t* cu_keys = nullptr;        // [sequences + 1]: where each sequence's keys begin
    const int32_t* token_keys = nullptr;     // [rows], rising: the key of each token
    const int32_t* selected_keys = nullptr;  // the key of each selected row
};

// The heads of one operand in a buffer's rows.
struct plan_heads {
    int buffer;
    int64_t first, row;  // elements: of the first head in a row, and of a row
};

// Steps read and write buffers of rows. A step runs over as many rows as its input's domain has. When
// a call is added, its fields that depend on the batch are null or 0; run() fills them in. Several
// threads may run a plan at a time.
//
// add() throws std::invalid_argument for a buffer that does not exist or has rows of another domain.
class plan {
public:
    using buffer = int;
    // The input has a row per token; the output has the domain of the step that writes it.
    static constexpr buffer kInput = 0, kOutput = 1, kNone = -1;

    // Adds a buffer of `row_bytes` per row. Its content lasts until another step writes it. Buffers
    // whose contents are not needed at the same time share memory.
    buffer add_buffer(int64_t row_bytes, row_domain domain = row_domain::tokens);

    // Looks up the batch's ids; tables are null where there is none. `scaled`: by the batch's scales.
    void add(const embedding_call& call, buffer output, bool scaled = false);
    void add(const packed_linear_call& call, buffer input, buffer output);
    // `input` holds bytes, `input_scales` their scales. The result is either `output` or
    // `quantized` with `scales`.
    void add(const quantized_linear_call& call, buffer input, buffer input_scales, buffer output,
             buffer quantized, buffer scales);
    void add(const norm_call& call, buffer input, buffer residual, buffer sum, buffer output,
             buffer quantized, buffer scales);
    // Normalises heads of each row in place, from element `first` of a row on.
    void add(const head_norm_call& call, buffer heads, int64_t first);
    void add(const quantize_call& call, buffer input, buffer output, buffer scales);
    void add(const activation_call& call, buffer input, buffer output);
    void add(const sum_call& call, buffer input, buffer other, buffer output);
    // Turns the first heads of each row in place.
    void add(const rotary_call& call, buffer heads);
    // Queries of tokens, selected or global tokens; keys and values of tokens or of keys. `sees_global`:
    // keys of global tokens count beyond the window.
    void add(const attention_call& call, plan_heads query, plan_heads key, plan_heads value, buffer output,
             bool sees_global);
    // Copies the rows of tokens that the output's domain says: selected, global or keys; `domain`: of
    // kOutput.
    void add(const take_call& call, buffer input, buffer output,
             row_domain domain = row_domain::selected);
    // Writes selected or global rows over those of their tokens.
    void add_putting(const take_call& call, buffer input, buffer output);
    void add(const neighbours_call& call, buffer input, buffer output);
    // Writes a row per sequence, from tokens or selected rows.
    void add(const pooling_call& call, buffer input, buffer output);
    // Turns rows of `width` bfloat16 into float32.
    void add_widening(int64_t width, buffer input, buffer output);

    // Throws std::invalid_argument where the batch lacks what a step reads, and std::out_of_range for
    // an id outside its table.
    void run(const plan_batch& batch) const;

    // The memory of all buffers in a run.
    size_t buffer_bytes(const plan_batch& batch) const;

private:
    struct rows;
    struct freed {
        void operator()(void* memory) const;
    };
    struct memory {
        std::unique_ptr<void, freed> content;
        size_t bytes = 0;
    };
    static constexpr size_t kNever = SIZE_MAX;
    struct described {
        int64_t row_bytes;
        row_domain domain;
        size_t range = kNever;      // the last of ranges_ that is of this buffer
        size_t last_read = kNever;  // by which step
    };
    // The steps from the one that writes a buffer to the last that reads what was written.
    struct live_range {
        buffer number;
        size_t first, last;
    };
    // Where ranges lie: in bytes times the number of rows, within the memory of their domain.
    struct placement {
        size_t num_steps = 0;
        std::vector<size_t> offsets;  // of ranges_
        std::array<size_t, 5> row_bytes{};  // of each domain's memory
    };
    using step = std::function<void(const rows&)>;
    // The inputs that run() needs from a batch, and the error message for a missing one.
    struct need {
        bool (*met)(const plan_batch&);
        const char* message;
    };

    std::vector<described> buffers_ = {{0, row_domain::tokens}, {0, row_domain::tokens}};
    std::vector<step> steps_;
    std::vector<need> needs_;
    std::vector<live_range> ranges_;  // by their first step
    const uint64_t owner_ = fork_count();
    mutable std::mutex mutex_;
    mutable std::shared_ptr<const placement> placement_;
    mutable std::vector<memory> idle_;

    row_domain read(buffer number);
    void read(buffer number, row_domain domain);
    void write(buffer number, row_domain domain);
    void check(buffer number) const;
    void check_domain(buffer number, row_domain domain) const;
    void begin_range(buffer number);
    std::shared_ptr<const placement> place_ranges() const;
    std::shared_ptr<const placement> placed_ranges() const;
    std::unique_lock<std::mutex> lock() const;
    void need_rows_of(row_domain domain);
    memory take(size_t bytes) const;
    void give_back(memory&& taken) const;
};

}  // namespace encoder_engine
