// Fills in the fields that depend on the batch, and keeps the buffers from call to call.
#include "cpu/plan.h"

#include <algorithm>
#include <new>
#include <utility>

namespace encoder_engine {
namespace {

constexpr std::align_val_t kAlignment{64};
// Larger buffers are freed after the call: a batch so large hides the cost of allocation.
constexpr size_t kMostKept = size_t{128} << 20;

}  // namespace

void plan::freed::operator()(void* memory) const { ::operator delete(memory, kAlignment); }

struct plan::rows {
    const plan_batch& batch;
    const std::vector<void*>& buffers;

    template <typename T = void>
    T* operator()(buffer number) const {
        return number == kNone ? nullptr : static_cast<T*>(buffers[static_cast<size_t>(number)]);
    }
};

plan::buffer plan::add_buffer(int64_t row_bytes) {
    row_bytes_.push_back(row_bytes);
    return static_cast<buffer>(row_bytes_.size()) + kOutput;
}

void plan::add(const packed_linear_call& call, buffer input, buffer output) {
    steps_.emplace_back([=](const rows& at) {
        packed_linear_call now = call;
        now.input = at(input);
        now.output = at(output);
        now.num_rows = at.batch.num_rows;
        now.num_threads = at.batch.num_threads;
        packed_linear(now);
    });
}

void plan::add(const quantized_linear_call& call, buffer input, buffer input_scales, buffer output,
               buffer quantized, buffer scales) {
    steps_.emplace_back([=](const rows& at) {
        quantized_linear_call now = call;
        now.input = at.operator()<uint8_t>(input);
        now.input_scales = at.operator()<float>(input_scales);
        now.output = at(output);
        now.quantized = at.operator()<uint8_t>(quantized);
        now.scales = at.operator()<float>(scales);
        now.num_rows = at.batch.num_rows;
        now.num_threads = at.batch.num_threads;
        quantized_linear(now);
    });
}

void plan::add(const norm_call& call, buffer input, buffer residual, buffer sum, buffer output,
               buffer quantized, buffer scales) {
    steps_.emplace_back([=](const rows& at) {
        norm_call now = call;
        now.input = at(input);
        now.residual = at(residual);
        now.sum = at(sum);
        now.output = at(output);
        now.quantized = at.operator()<uint8_t>(quantized);
        now.scales = at.operator()<float>(scales);
        now.num_rows = at.batch.num_rows;
        now.num_threads = at.batch.num_threads;
        normalize_rows(now);
    });
}

void plan::add(const quantize_call& call, buffer input, buffer output, buffer scales) {
    steps_.emplace_back([=](const rows& at) {
        quantize_call now = call;
        now.input = at(input);
        now.output = at.operator()<uint8_t>(output);
        now.scales = at.operator()<float>(scales);
        now.num_rows = at.batch.num_rows;
        now.num_threads = at.batch.num_threads;
        quantize_rows(now);
    });
}

void plan::add(const activation_call& call, buffer input, buffer output) {
    steps_.emplace_back([=](const rows& at) {
        activation_call now = call;
        now.input = at(input);
        now.output = at(output);
        now.num_rows = at.batch.num_rows;
        now.num_threads = at.batch.num_threads;
        activate_rows(now);
    });
}

void plan::add(const sum_call& call, buffer input, buffer other, buffer output) {
    steps_.emplace_back([=](const rows& at) {
        sum_call now = call;
        now.input = at(input);
        now.other = at(other);
        now.output = at(output);
        now.num_rows = at.batch.num_rows;
        now.num_threads = at.batch.num_threads;
        add_rows(now);
    });
}

void plan::add(const rotary_call& call, buffer heads) {
    steps_.emplace_back([=](const rows& at) {
        rotary_call now = call;
        now.input = now.output = at(heads);
        now.positions = at.batch.positions;
        now.num_rows = at.batch.num_rows;
        now.num_threads = at.batch.num_threads;
        rotate_rows(now);
    });
}

void plan::add(const attention_call& call, buffer input, buffer output) {
    steps_.emplace_back([=](const rows& at) {
        const int64_t width = call.num_heads * call.head_dim;
        const auto part = [&](int64_t number) {
            return head_rows{at.operator()<char>(input) + number * width * element_bytes(call.type), 3 * width,
                             call.head_dim};
        };
        attention_call now = call;
        now.query = part(0);
        now.key = part(1);
        now.value = part(2);
        now.output = at(output);
        now.cu_seqlens = at.batch.cu_seqlens;
        now.num_sequences = at.batch.num_sequences;
        now.num_threads = at.batch.num_threads;
        attention(now);
    });
}

void plan::run(const plan_batch& batch) const {
    const auto bytes_of = [&](int64_t row_bytes) {
        return static_cast<size_t>(whole(row_bytes * batch.num_rows, 64));
    };
    size_t bytes = 0;
    for (const int64_t row_bytes : row_bytes_) bytes += bytes_of(row_bytes);
    memory taken = take(bytes);
    std::vector<void*> buffers = {const_cast<void*>(batch.input), batch.output};
    char* at = static_cast<char*>(taken.content.get());
    for (const int64_t row_bytes : row_bytes_) {
        buffers.push_back(at);
        at += bytes_of(row_bytes);
    }
    const rows all = {batch, buffers};
    for (const auto& step : steps_) step(all);
    give_back(std::move(taken));
}

plan::memory plan::take(size_t bytes) const {
    memory taken;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!idle_.empty()) {
            taken = std::move(idle_.back());
            idle_.pop_back();
        }
    }
    if (taken.bytes < bytes) {
        taken.content.reset();
        taken.content.reset(::operator new(bytes, kAlignment));
        taken.bytes = bytes;
    }
    return taken;
}

void plan::give_back(memory&& taken) const {
    if (taken.bytes > kMostKept) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(std::move(taken));
}

}  // namespace encoder_engine
