// Fills in the fields that depend on the batch, and keeps the buffers from call to call.
#include "cpu/plan/plan.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "cpu/conversion.h"

namespace encoder_engine {
namespace {

const char* name_of(row_domain domain) {
    switch (domain) {
        case row_domain::tokens: return "tokens";
        case row_domain::selected: return "selected rows";
        case row_domain::global: return "global rows";
        case row_domain::sequences: return "sequences";
        case row_domain::keys: return "keys";
    }
    return "";
}

}  // namespace

struct plan::rows {
    const plan_batch& batch;
    const std::vector<void*>& buffers;

    template <typename T = void>
    T* operator()(buffer number) const {
        return number == kNone ? nullptr : static_cast<T*>(buffers[static_cast<size_t>(number)]);
    }
    int64_t count(row_domain domain) const {
        if (domain == row_domain::sequences) return batch.num_sequences;
        if (domain == row_domain::tokens) return batch.num_rows;
        const int32_t* const where = starts(domain);
        return where == nullptr ? 0 : where[batch.num_sequences];
    }
    size_t num_rows(size_t domain) const {
        return static_cast<size_t>(count(static_cast<row_domain>(domain)));
    }
    // Where each sequence's rows begin.
    const int32_t* starts(row_domain domain) const {
        return domain == row_domain::selected ? batch.cu_selected
               : domain == row_domain::global ? batch.cu_global
               : domain == row_domain::keys   ? batch.cu_keys
                                              : batch.cu_seqlens;
    }
    // The token of each row; null: row i is token i.
    const int32_t* tokens(row_domain domain) const {
        return domain == row_domain::selected ? batch.selected_rows
               : domain == row_domain::global ? batch.global_rows
               : domain == row_domain::keys   ? batch.key_tokens
                                              : nullptr;
    }
    template <typename Call>
    void fill(Call& call, row_domain domain) const {
        call.num_rows = count(domain);
        call.num_threads = batch.num_threads;
    }
};

plan::buffer plan::add_buffer(int64_t row_bytes, row_domain domain) {
    buffers_.push_back({row_bytes, domain});
    need_rows_of(domain);
    return static_cast<buffer>(buffers_.size()) - 1;
}

void plan::need_rows_of(row_domain domain) {
    if (domain == row_domain::selected) {
        needs_.push_back({[](const plan_batch& batch) {
                              return batch.cu_selected != nullptr &&
                                     (batch.selected_rows != nullptr ||
                                      batch.cu_selected[batch.num_sequences] == 0);
                          },
                          "the plan selects rows: pass selected_rows and cu_selected"});
    }
    if (domain == row_domain::keys) {
        needs_.push_back({[](const plan_batch& batch) {
                              return batch.cu_keys != nullptr && batch.key_tokens != nullptr &&
                                     batch.token_keys != nullptr &&
                                     (batch.cu_selected == nullptr || batch.selected_keys != nullptr);
                          },
                          "the plan has keys: pass key_tokens, cu_keys, token_keys and selected_keys"});
    }
    if (domain == row_domain::global) {
        needs_.push_back({[](const plan_batch& batch) {
                              return batch.cu_global != nullptr &&
                                     (batch.global_rows != nullptr ||
                                      batch.cu_global[batch.num_sequences] == 0);
                          },
                          "the plan has global rows: pass global_rows and cu_global"});
    }
}

void plan::check(buffer number) const {
    if (number < 0 || static_cast<size_t>(number) >= buffers_.size()) {
        throw std::invalid_argument("there is no buffer " + std::to_string(number) + "; there are " +
                                    std::to_string(buffers_.size()) + ", the first is 0");
    }
}

void plan::begin_range(buffer number) {
    buffers_[static_cast<size_t>(number)].range = ranges_.size();
    ranges_.push_back({number, steps_.size(), steps_.size()});
}

row_domain plan::read(buffer number) {
    check(number);
    described& found = buffers_[static_cast<size_t>(number)];
    if (number == kInput) {
        needs_.push_back({[](const plan_batch& batch) { return batch.input != nullptr; },
                          "the plan reads its input: pass its rows"});
    }
    if (number > kOutput) {
        if (found.range == kNever) begin_range(number);
        ranges_[found.range].last = found.last_read = steps_.size();
    }
    return found.domain;
}

void plan::read(buffer number, row_domain domain) {
    if (number == kNone) return;
    check_domain(number, domain);
    read(number);
}

void plan::check_domain(buffer number, row_domain domain) const {
    check(number);
    const row_domain found = buffers_[static_cast<size_t>(number)].domain;
    if (found != domain) {
        throw std::invalid_argument(std::string("the step has rows of ") + name_of(domain) +
                                    ", but buffer " + std::to_string(number) + " has rows of " +
                                    name_of(found));
    }
}

void plan::write(buffer number, row_domain domain) {
    if (number == kNone) return;
    check(number);
    if (number == kOutput) {
        buffers_[kOutput].domain = domain;
        return;
    }
    check_domain(number, domain);
    // What a step reads too is written in place.
    if (number > kOutput && buffers_[static_cast<size_t>(number)].last_read != steps_.size()) {
        begin_range(number);
    }
}

void plan::add(const embedding_call& call, buffer output, bool scaled) {
    write(output, row_domain::tokens);
    needs_.push_back({[](const plan_batch& batch) { return batch.ids != nullptr; },
                      "the plan embeds tokens: pass ids"});
    if (call.positions.content != nullptr) {
        needs_.push_back({[](const plan_batch& batch) { return batch.position_ids != nullptr; },
                          "the plan embeds positions: pass position_ids"});
    }
    if (scaled) {
        needs_.push_back({[](const plan_batch& batch) { return batch.token_scales != nullptr; },
                          "the plan scales tokens: pass token_scales"});
    }
    steps_.emplace_back([=](const rows& at) {
        embedding_call now = call;
        if (scaled) now.token_scales = at.batch.token_scales;
        now.tokens.ids = at.batch.ids;
        now.positions.ids = at.batch.position_ids;
        now.segments.ids = at.batch.type_ids;
        now.output = at(output);
        at.fill(now, row_domain::tokens);
        embed_rows(now);
    });
}

void plan::add(const packed_linear_call& call, buffer input, buffer output) {
    const row_domain domain = read(input);
    write(output, domain);
    steps_.emplace_back([=](const rows& at) {
        packed_linear_call now = call;
        now.input = at(input);
        now.output = at(output);
        at.fill(now, domain);
        packed_linear(now);
    });
}

void plan::add(const quantized_linear_call& call, buffer input, buffer input_scales, buffer output,
               buffer quantized, buffer scales) {
    const row_domain domain = read(input);
    read(input_scales, domain);
    for (const buffer to : {output, quantized, scales}) write(to, domain);
    steps_.emplace_back([=](const rows& at) {
        quantized_linear_call now = call;
        now.input = at.operator()<uint8_t>(input);
        now.input_scales = at.operator()<float>(input_scales);
        now.output = at(output);
        now.quantized = at.operator()<uint8_t>(quantized);
        now.scales = at.operator()<float>(scales);
        at.fill(now, domain);
        quantized_linear(now);
    });
}

void plan::add(const norm_call& call, buffer input, buffer residual, buffer sum, buffer output,
               buffer quantized, buffer scales) {
    const row_domain domain = read(input);
    read(residual, domain);
    for (const buffer to : {sum, output, quantized, scales}) write(to, domain);
    steps_.emplace_back([=](const rows& at) {
        norm_call now = call;
        now.input = at(input);
        now.residual = at(residual);
        now.sum = at(sum);
        now.output = at(output);
        now.quantized = at.operator()<uint8_t>(quantized);
        now.scales = at.operator()<float>(scales);
        at.fill(now, domain);
        normalize_rows(now);
    });
}

void plan::add(const head_norm_call& call, buffer heads, int64_t first) {
    const row_domain domain = read(heads);
    steps_.emplace_back([=](const rows& at) {
        head_norm_call now = call;
        now.heads = at.operator()<char>(heads) + first * element_bytes(call.type);
        at.fill(now, domain);
        normalize_heads(now);
    });
}

void plan::add(const quantize_call& call, buffer input, buffer output, buffer scales) {
    const row_domain domain = read(input);
    for (const buffer to : {output, scales}) write(to, domain);
    steps_.emplace_back([=](const rows& at) {
        quantize_call now = call;
        now.input = at(input);
        now.output = at.operator()<uint8_t>(output);
        now.scales = at.operator()<float>(scales);
        at.fill(now, domain);
        quantize_rows(now);
    });
}

void plan::add(const activation_call& call, buffer input, buffer output) {
    const row_domain domain = read(input);
    write(output, domain);
    steps_.emplace_back([=](const rows& at) {
        activation_call now = call;
        now.input = at(input);
        now.output = at(output);
        at.fill(now, domain);
        activate_rows(now);
    });
}

void plan::add(const sum_call& call, buffer input, buffer other, buffer output) {
    const row_domain domain = read(input);
    read(other, domain);
    write(output, domain);
    steps_.emplace_back([=](const rows& at) {
        sum_call now = call;
        now.input = at(input);
        now.other = at(other);
        now.output = at(output);
        at.fill(now, domain);
        add_rows(now);
    });
}

void plan::add(const rotary_call& call, buffer heads) {
    const row_domain domain = read(heads);
    if (domain == row_domain::sequences) read(heads, row_domain::tokens);
    needs_.push_back({[](const plan_batch& batch) { return batch.positions != nullptr; },
                      "the plan turns heads: pass positions"});
    steps_.emplace_back([=](const rows& at) {
        rotary_call now = call;
        now.input = now.output = at(heads);
        now.positions = at.batch.positions;
        now.rows = at.tokens(domain);
        at.fill(now, domain);
        rotate_rows(now);
    });
}

void plan::add(const attention_call& call, plan_heads query, plan_heads key, plan_heads value,
               buffer output, bool sees_global) {
    const row_domain domain = read(query.buffer);
    const row_domain key_domain = read(key.buffer);
    if (key_domain != row_domain::keys) read(key.buffer, row_domain::tokens);
    read(value.buffer, key_domain);
    if (domain == row_domain::sequences) read(query.buffer, row_domain::selected);
    write(output, domain);
    if (sees_global) need_rows_of(row_domain::global);
    if (call.bias_reach > 0 && call.relative_bias == nullptr) {
        throw std::invalid_argument("attention has the reach of a relative bias, but no bias");
    }
    steps_.emplace_back([=](const rows& at) {
        const auto rows_of = [&](const plan_heads& heads) {
            return head_rows{at.operator()<char>(heads.buffer) + heads.first * element_bytes(call.type),
                             heads.row, call.head_dim};
        };
        attention_call now = call;
        now.query = rows_of(query);
        now.key = rows_of(key);
        now.value = rows_of(value);
        now.output = at(output);
        now.cu_seqlens = at.batch.cu_seqlens;
        now.num_sequences = at.batch.num_sequences;
        now.num_threads = at.batch.num_threads;
        now.query_rows = at.tokens(domain);
        now.cu_queries = at.starts(domain);
        if (key_domain == row_domain::keys) {
            now.cu_seqlens = at.batch.cu_keys;
            now.query_rows =
                domain == row_domain::tokens ? at.batch.token_keys : at.batch.selected_keys;
        }
        if (sees_global) {
            now.global_rows = at.batch.global_rows;
            now.cu_global = at.batch.cu_global;
        }
        attention(now);
    });
}

void plan::add(const take_call& call, buffer input, buffer output, row_domain domain) {
    read(input, row_domain::tokens);
    check(output);
    if (output != kOutput) domain = buffers_[static_cast<size_t>(output)].domain;
    if (domain == row_domain::tokens || domain == row_domain::sequences) {
        domain = row_domain::selected;
    }
    need_rows_of(domain);
    write(output, domain);
    steps_.emplace_back([=](const rows& at) {
        take_call now = call;
        now.input = at(input);
        now.output = at(output);
        now.rows = at.tokens(domain);
        at.fill(now, domain);
        take_rows(now);
    });
}

void plan::add_putting(const take_call& call, buffer input, buffer output) {
    const row_domain domain = read(input);
    if (domain != row_domain::global) read(input, row_domain::selected);
    // The other rows stay.
    read(output, row_domain::tokens);
    steps_.emplace_back([=](const rows& at) {
        take_call now = call;
        now.input = at(input);
        now.output = at(output);
        now.rows = at.tokens(domain);
        at.fill(now, domain);
        put_rows(now);
    });
}

void plan::add(const neighbours_call& call, buffer input, buffer output) {
    read(input, row_domain::tokens);
    write(output, row_domain::tokens);
    steps_.emplace_back([=](const rows& at) {
        neighbours_call now = call;
        now.input = at(input);
        now.output = at(output);
        now.cu_seqlens = at.batch.cu_seqlens;
        now.num_sequences = at.batch.num_sequences;
        at.fill(now, row_domain::tokens);
        take_neighbours(now);
    });
}

void plan::add(const pooling_call& call, buffer input, buffer output) {
    const row_domain domain = read(input);
    if (domain == row_domain::sequences) {
        throw std::invalid_argument("buffer " + std::to_string(input) +
                                    " has a row per sequence already: there is nothing to pool");
    }
    write(output, row_domain::sequences);
    steps_.emplace_back([=](const rows& at) {
        pooling_call now = call;
        now.input = at(input);
        now.output = at(output);
        now.cu_seqlens = at.starts(domain);
        at.fill(now, row_domain::sequences);
        pool_rows(now);
    });
}

void plan::add_widening(int64_t width, buffer input, buffer output) {
    const row_domain domain = read(input);
    write(output, domain);
    steps_.emplace_back([=](const rows& at) {
        widen(at.operator()<bfloat16>(input), at.operator()<float>(output), at.count(domain) * width,
              at.batch.num_threads);
    });
}

void plan::run(const plan_batch& batch) const {
    for (const need& one : needs_) {
        if (batch.num_rows > 0 && !one.met(batch)) throw std::invalid_argument(one.message);
    }
    const std::shared_ptr<const placement> placed = placed_ranges();
    std::vector<void*> places(buffers_.size(), nullptr);
    places[kInput] = const_cast<void*>(batch.input);
    places[kOutput] = batch.output;
    const rows all = {batch, places};
    std::array<size_t, 5> starts{};
    size_t bytes = 0;
    for (size_t domain = 0; domain < starts.size(); ++domain) {
        starts[domain] = bytes;
        bytes += placed->row_bytes[domain] * all.num_rows(domain);
    }
    memory taken = take(bytes);
    size_t range = 0;
    for (size_t i = 0; i < steps_.size(); ++i) {
        for (; range < ranges_.size() && ranges_[range].first == i; ++range) {
            const size_t number = static_cast<size_t>(ranges_[range].number);
            const size_t domain = static_cast<size_t>(buffers_[number].domain);
            places[number] = static_cast<char*>(taken.content.get()) + starts[domain] +
                             placed->offsets[range] * all.num_rows(domain);
        }
        steps_[i](all);
    }
    give_back(std::move(taken));
}

size_t plan::buffer_bytes(const plan_batch& batch) const {
    const std::shared_ptr<const placement> placed = placed_ranges();
    const std::vector<void*> none;
    const rows counts = {batch, none};
    size_t bytes = 0;
    for (size_t domain = 0; domain < placed->row_bytes.size(); ++domain) {
        bytes += placed->row_bytes[domain] * counts.num_rows(domain);
    }
    return bytes;
}

}  // namespace encoder_engine
