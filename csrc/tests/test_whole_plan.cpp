// A plan from ids to pooled vectors on every instruction set: a sequence's bits are its own, whatever
// the other sequences and the number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "cpu/plan/plan.h"
#include "tests/checks.h"

namespace encoder_engine {
namespace {

constexpr int64_t kHeads = 3, kHeadDim = 20, kWidth = kHeads * kHeadDim, kTokens = 50, kReach = 5;
constexpr int64_t kKernel = 3;

// Numbers in an element type.
class numbers {
public:
    numbers(std::mt19937& random, element_type type, int64_t count)
        : wide_(static_cast<size_t>(count)), narrow_(static_cast<size_t>(count)), type_(type) {
        std::normal_distribution<float> normal(0.0f, 0.3f);
        for (float& x : wide_) x = normal(random);
        std::transform(wide_.begin(), wide_.end(), narrow_.begin(), narrow);
    }
    const void* data() const {
        return type_ == element_type::float32 ? static_cast<const void*>(wide_.data())
                                              : static_cast<const void*>(narrow_.data());
    }

private:
    std::vector<float> wide_;
    std::vector<bfloat16> narrow_;
    element_type type_;
};

struct layer {
    layer(std::mt19937& random, element_type type, int64_t depth, int64_t width)
        : memory(static_cast<size_t>(panels_bytes(width, depth * element_bytes(type))) + 64) {
        char* const packed = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
        pack_linear(type, numbers(random, type, width * depth).data(), nullptr, width, depth, packed,
                    1);
        call.type = type;
        call.weight = packed;
        call.depth = depth;
        call.width = width;
    }
    std::vector<char> memory;
    packed_linear_call call{};
};

enum class term { none, bias, window_with_global, distances };

struct encoder {
    encoder(std::mt19937& random, element_type type, term kind)
        : table(random, type, kTokens * kWidth), norm(random, type, kWidth),
          bias(random, element_type::float32, kHeads * (2 * kReach + 1)),
          vectors(random, type, 2 * kReach * kWidth), key_value(random, type, kWidth, 2 * kWidth),
          query(random, type, kWidth, kWidth), convolution(random, type, kKernel * kWidth, kWidth) {
        const int64_t size = element_bytes(type);
        const plan::buffer embedded = steps.add_buffer(kWidth * size);
        const plan::buffer columns = steps.add_buffer(kKernel * kWidth * size);
        const plan::buffer hidden = steps.add_buffer(kWidth * size);
        const plan::buffer heads = steps.add_buffer(2 * kWidth * size);
        const plan::buffer everywhere = steps.add_buffer(kWidth * size, row_domain::global);
        const plan::buffer few = steps.add_buffer(kWidth * size, row_domain::selected);
        const plan::buffer queries = steps.add_buffer(kWidth * size, row_domain::selected);
        const plan::buffer mixed = steps.add_buffer(kWidth * size, row_domain::selected);
        const plan::buffer wide = steps.add_buffer(kWidth * 4, row_domain::selected);
        embedding_call look_up{};
        look_up.type = type;
        look_up.tokens = {table.data(), nullptr, kTokens};
        look_up.weight = norm.data();
        look_up.width = kWidth;
        look_up.epsilon = 1e-5f;
        steps.add(look_up, embedded);
        neighbours_call around{};
        around.row_bytes = kWidth * size;
        around.kernel_size = kKernel;
        steps.add(around, embedded, columns);
        convolution.call.function = activation::tanh;
        steps.add(convolution.call, columns, hidden);
        take_call taking{};
        taking.row_bytes = kWidth * size;
        steps.add(taking, embedded, everywhere);
        steps.add_putting(taking, everywhere, hidden);
        steps.add(key_value.call, hidden, heads);
        steps.add(taking, hidden, few);
        steps.add(query.call, few, queries);
        attention_call attend{};
        attend.type = type;
        attend.num_heads = attend.num_key_heads = kHeads;
        attend.head_dim = kHeadDim;
        attend.scale = 0.4f;
        attend.window = kind == term::window_with_global ? 3 : -1;
        if (kind == term::bias) {
            attend.relative_bias = static_cast<const float*>(bias.data());
            attend.bias_reach = kReach;
        }
        if (kind == term::distances) {
            for (int32_t i = 0; i < 2 * kReach + 1; ++i) {
                entries.push_back(std::min<int32_t>(2 * kReach - i, 2 * kReach - 1));
            }
            const head_rows rows{vectors.data(), kWidth, kHeadDim};
            attend.distances = {rows, rows, entries.data(), kReach};
        }
        steps.add(attend, {queries, 0, kWidth}, {heads, 0, 2 * kWidth}, {heads, kWidth, 2 * kWidth},
                  mixed, kind == term::window_with_global);
        if (type == element_type::bfloat16) {
            steps.add_widening(kWidth, mixed, wide);
        } else {
            activation_call copy{};
            copy.width = kWidth;
            steps.add(copy, mixed, wide);
        }
        pooling_call pool{};
        pool.mode = pooling_mode::mean;
        pool.normalized = true;
        pool.width = kWidth;
        steps.add(pool, wide, plan::kOutput);
    }

    // Every third token of each sequence is selected, every seventh is global.
    std::vector<float> run(const std::vector<std::vector<int32_t>>& texts, int num_threads) const {
        std::vector<int32_t> ids, starts = {0}, selected, cu_selected = {0}, global, cu_global = {0};
        for (const std::vector<int32_t>& text : texts) {
            const int32_t first = starts.back(), count = static_cast<int32_t>(text.size());
            for (int32_t i = 0; i < count; i += 3) selected.push_back(first + i);
            for (int32_t i = 3; i < count; i += 7) global.push_back(first + i);
            ids.insert(ids.end(), text.begin(), text.end());
            starts.push_back(first + count);
            cu_selected.push_back(static_cast<int32_t>(selected.size()));
            cu_global.push_back(static_cast<int32_t>(global.size()));
        }
        std::vector<float> pooled(texts.size() * kWidth, NAN);
        plan_batch batch{};
        batch.output = pooled.data();
        batch.cu_seqlens = starts.data();
        batch.num_sequences = static_cast<int64_t>(texts.size());
        batch.num_rows = starts.back();
        batch.num_threads = num_threads;
        batch.ids = ids.data();
        batch.selected_rows = selected.data();
        batch.cu_selected = cu_selected.data();
        batch.global_rows = global.data();
        batch.cu_global = cu_global.data();
        steps.run(batch);
        return pooled;
    }

    numbers table, norm, bias, vectors;
    layer key_value, query, convolution;
    std::vector<int32_t> entries;
    plan steps;
};

void check_encoder(std::mt19937& random, const encoder& given) {
    std::vector<std::vector<int32_t>> texts(6);
    for (std::vector<int32_t>& text : texts) {
        text.resize(random() % 90);
        for (int32_t& id : text) id = static_cast<int32_t>(random() % kTokens);
    }
    texts[2].clear();
    const std::vector<float> together = given.run(texts, 1), many = given.run(texts, 3);
    CHECK(std::memcmp(together.data(), many.data(), many.size() * sizeof(float)) == 0);
    for (size_t i = 0; i < texts.size(); ++i) {
        const std::vector<float> alone = given.run({texts[i]}, 1);
        const float* const among = together.data() + i * kWidth;
        CHECK(std::memcmp(alone.data(), among, alone.size() * sizeof(float)) == 0);
        double length = 0.0;
        for (const float x : alone) length += double{x} * double{x};
        CHECK(std::abs(length - (texts[i].empty() ? 0.0 : 1.0)) < 1e-5);
    }
}

}  // namespace

void test_whole_plans_on_every_instruction_set() {
    const std::string before = instruction_set_name(chosen_instruction_set());
    for (const instruction_set level : supported_instruction_sets()) {
        CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        std::mt19937 random(4);
        for (const element_type type : {element_type::float32, element_type::bfloat16}) {
            for (const term kind :
                 {term::none, term::bias, term::window_with_global, term::distances}) {
                check_encoder(random, encoder(random, type, kind));
            }
        }
    }
    CHECK(choose_instruction_set(before.c_str()).empty());
}

}  // namespace encoder_engine
