// A plan from several threads at a time: each batch gets what the operations give when called alone.
#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "cpu/plan/plan.h"
#include "tests/checks.h"

namespace encoder_engine {
namespace {

constexpr int64_t kWidth = 48, kHeads = 3;

std::vector<float> draw(std::mt19937& random, int64_t count) {
    std::vector<float> drawn(static_cast<size_t>(count));
    for (float& x : drawn) x = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000.0f;
    return drawn;
}

// A packed weight, aligned as products want it.
class layer {
public:
    layer(std::mt19937& random, int64_t depth, int64_t width)
        : memory_(static_cast<size_t>(panels_bytes(width, depth * 4)) + 64),
          packed_(memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64)) {
        const std::vector<float> weight = draw(random, width * depth), bias = draw(random, width);
        pack_linear(element_type::float32, weight.data(), bias.data(), width, depth, packed_, 1);
        call.type = element_type::float32;
        call.weight = packed_;
        call.depth = depth;
        call.width = width;
    }
    packed_linear_call call{};

private:
    std::vector<char> memory_;
    char* packed_;
};

struct block {
    explicit block(std::mt19937& random)
        : qkv(random, kWidth, 3 * kWidth), output(random, kWidth, kWidth), weight(draw(random, kWidth)) {
        mix.type = norm.type = element_type::float32;
        mix.num_heads = mix.num_key_heads = kHeads;
        mix.head_dim = kWidth / kHeads;
        mix.scale = 0.25f;
        mix.window = -1;
        norm.weight = weight.data();
        norm.width = kWidth;
        norm.epsilon = 1e-5f;
        norm.centred = true;
    }

    void add_to(plan& steps) const {
        const plan::buffer heads = steps.add_buffer(3 * kWidth * 4), mixed = steps.add_buffer(kWidth * 4);
        const plan::buffer projected = steps.add_buffer(kWidth * 4);
        steps.add(qkv.call, plan::kInput, heads);
        const auto part = [=](int64_t number) {
            return plan_heads{heads, number * kWidth, 3 * kWidth};
        };
        steps.add(mix, part(0), part(1), part(2), mixed, false);
        steps.add(output.call, mixed, projected);
        steps.add(norm, projected, plan::kInput, plan::kNone, plan::kOutput, plan::kNone,
                  plan::kNone);
    }

    std::vector<float> run(const plan_batch& batch) const {
        const size_t size = static_cast<size_t>(batch.num_rows * kWidth);
        std::vector<float> heads(3 * size), mixed(size), projected(size), result(size);
        packed_linear_call product = qkv.call;
        product.num_rows = batch.num_rows;
        product.num_threads = 1;
        product.input = batch.input;
        product.output = heads.data();
        packed_linear(product);
        attention_call mixing = mix;
        mixing.query = {heads.data(), 3 * kWidth, mix.head_dim};
        mixing.key = {heads.data() + kWidth, 3 * kWidth, mix.head_dim};
        mixing.value = {heads.data() + 2 * kWidth, 3 * kWidth, mix.head_dim};
        mixing.output = mixed.data();
        mixing.cu_seqlens = batch.cu_seqlens;
        mixing.num_sequences = batch.num_sequences;
        mixing.num_threads = 1;
        attention(mixing);
        product = output.call;
        product.num_rows = batch.num_rows;
        product.num_threads = 1;
        product.input = mixed.data();
        product.output = projected.data();
        packed_linear(product);
        norm_call last = norm;
        last.input = projected.data();
        last.residual = batch.input;
        last.output = result.data();
        last.num_rows = batch.num_rows;
        last.num_threads = 1;
        normalize_rows(last);
        return result;
    }

    layer qkv, output;
    std::vector<float> weight;
    attention_call mix{};
    norm_call norm{};
};

}  // namespace

void test_threads_may_share_a_plan() {
    std::mt19937 random(8);
    const block steps(random);
    plan planned;
    steps.add_to(planned);
    std::vector<std::thread> threads;
    std::vector<int> wrong(4, 0);
    for (size_t t = 0; t < wrong.size(); ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 own(static_cast<unsigned>(t));
            for (const int32_t length : {1, 40, 7, 0, 90}) {
                const int32_t starts[] = {0, length, length, 2 * length + 3};
                const int64_t num_rows = starts[3];
                const std::vector<float> input = draw(own, num_rows * kWidth);
                std::vector<float> found(input.size());
                const plan_batch batch = {input.data(), found.data(), starts, nullptr, 3, num_rows, 2};
                planned.run(batch);
                const std::vector<float> expected = steps.run(batch);
                wrong[t] += std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int count : wrong) CHECK(count == 0);
}

void test_a_forked_child_runs_a_plan_of_threads() {
#if !defined(_WIN32)
    plan planned;
    const plan::buffer wide = planned.add_buffer(4);
    planned.add_widening(1, plan::kInput, wide);
    planned.add(sum_call{element_type::float32, nullptr, nullptr, nullptr, 0, 1, 0}, wide, wide,
                plan::kOutput);
    const bfloat16 one = narrow(1.0f);
    const int32_t starts[] = {0, 1};
    const auto run = [&] {
        float found = 0.0f;
        planned.run({&one, &found, starts, nullptr, 1, 1, 1});
        return found == 2.0f;
    };
    std::atomic<bool> stop{false};
    std::thread other([&] {
        while (!stop) run();
    });
    // Sooner or later a fork meets the other thread while it holds the plan's lock.
    bool right = true;
    for (int round = 0; right && round < 200; ++round) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(run() && run() ? 0 : 1);
        }
        int status = -1;
        right = waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    stop = true;
    other.join();
    CHECK(right);
#endif
}

}  // namespace encoder_engine
