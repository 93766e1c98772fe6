// Row kernels on every instruction set: within their rows, right, and with the same bits on any threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "cpu/rows.h"
#include "tests/checks.h"

namespace encoder_engine {
namespace {

constexpr int64_t kRows = 67;

std::vector<float> draw(std::mt19937& random, int64_t count) {
    std::normal_distribution<float> normal;
    std::vector<float> drawn(static_cast<size_t>(count));
    for (float& x : drawn) x = normal(random);
    return drawn;
}

void check_norm_and_quantization(std::mt19937& random, int64_t width, int num_threads) {
    const std::vector<float> input = draw(random, kRows * width), residual = draw(random, kRows * width);
    const std::vector<float> weight = draw(random, width), bias = draw(random, width);
    std::vector<float> sum(input.size(), NAN), output(input.size(), NAN), scales(kRows), again(kRows);
    std::vector<uint8_t> bytes(input.size()), same(input.size());
    normalize_rows({element_type::float32, input.data(), residual.data(), weight.data(), bias.data(),
                    sum.data(), output.data(), bytes.data(), scales.data(), kRows, width, 1e-5f, true,
                    num_threads});
    quantize_rows({element_type::float32, output.data(), same.data(), again.data(), kRows, width, 1});
    CHECK(bytes == same && scales == again);
    for (int64_t row = 0; row < kRows; ++row) {
        double mean = 0.0, variance = 0.0;
        for (int64_t i = row * width; i < (row + 1) * width; ++i) {
            CHECK(sum[static_cast<size_t>(i)] == input[static_cast<size_t>(i)] + residual[static_cast<size_t>(i)]);
            mean += double{sum[static_cast<size_t>(i)]} / static_cast<double>(width);
        }
        for (int64_t i = row * width; i < (row + 1) * width; ++i) {
            variance += std::pow(double{sum[static_cast<size_t>(i)]} - mean, 2.0) / static_cast<double>(width);
        }
        for (int64_t at = 0; at < width; ++at) {
            const auto i = static_cast<size_t>(row * width + at), d = static_cast<size_t>(at);
            const double truth = (double{sum[i]} - mean) / std::sqrt(variance + 1e-5) * double{weight[d]} + double{bias[d]};
            CHECK(std::abs(double{output[i]} - truth) < 1e-4);
            const double step = double{scales[static_cast<size_t>(row)]};
            CHECK(std::abs((bytes[i] - 128) * step - double{output[i]}) <= 0.5001 * step);
        }
    }
}

void check_lookup_and_pooling(std::mt19937& random, int64_t width, int num_threads) {
    constexpr int64_t kTokens = 5;
    const std::vector<float> table = draw(random, kTokens * width), weight = draw(random, width);
    std::vector<int32_t> ids(kRows), none(kRows);
    for (size_t row = 0; row < ids.size(); ++row) ids[row] = static_cast<int32_t>(random() % kTokens);
    std::vector<float> sums, output(static_cast<size_t>(kRows * width), NAN), same(output.size(), NAN);
    for (const int32_t id : ids) {
        for (int64_t at = 0; at < width; ++at) {
            sums.push_back(table[static_cast<size_t>(id * width + at)] + table[static_cast<size_t>(at)]);
        }
    }
    embed_rows({element_type::float32, {table.data(), ids.data(), kTokens}, {table.data(), none.data(), 1},
                {nullptr, nullptr, 0}, weight.data(), nullptr, output.data(), kRows, width, 1e-5f, num_threads});
    normalize_rows({element_type::float32, sums.data(), nullptr, weight.data(), nullptr, nullptr, same.data(),
                    nullptr, nullptr, kRows, width, 1e-5f, true, 1});
    CHECK(output == same);
    bool refused = false;
    try {
        embed_rows({element_type::float32, {table.data(), ids.data(), 0}, {nullptr, nullptr, 0},
                    {nullptr, nullptr, 0}, weight.data(), nullptr, output.data(), kRows, width, 1e-5f, 1});
    } catch (const std::out_of_range&) {
        refused = true;
    }
    CHECK(refused);

    const std::vector<int32_t> cu_seqlens = {0, 1, 1, 66, kRows};
    std::vector<float> pooled(static_cast<size_t>(4 * width), NAN);
    pool_rows({element_type::float32, pooling_mode::mean, false, sums.data(), cu_seqlens.data(),
               pooled.data(), 4, width, num_threads});
    for (size_t place = 0; place < 4; ++place) {
        for (int64_t at = 0; at < width; ++at) {
            double truth = 0.0;
            for (int64_t row = cu_seqlens[place]; row < cu_seqlens[place + 1]; ++row) {
                truth += double{sums[static_cast<size_t>(row * width + at)]};
            }
            truth /= std::max(1, cu_seqlens[place + 1] - cu_seqlens[place]);
            CHECK(std::abs(double{pooled[place * static_cast<size_t>(width) + static_cast<size_t>(at)]} - truth) < 1e-5);
        }
    }
}

void check_activations(std::mt19937& random, int64_t width, int num_threads) {
    const std::vector<float> input = draw(random, kRows * 2 * width), bias = draw(random, 2 * width);
    std::vector<float> output(static_cast<size_t>(kRows * width), NAN);
    activate_rows({element_type::float32, activation::gelu, true, input.data(), bias.data(),
                   output.data(), kRows, width, num_threads});
    for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t at = 0; at < width; ++at) {
            const auto from = static_cast<size_t>(2 * row * width + at), d = static_cast<size_t>(at);
            const auto half = static_cast<size_t>(width);
            const double x = double{input[from] + bias[d]};
            const double gate = double{input[from + half] + bias[d + half]};
            const double truth = x * 0.5 * std::erfc(-x * std::sqrt(0.5)) * gate;
            CHECK(std::abs(double{output[static_cast<size_t>(row * width + at)]} - truth) < 1e-5);
        }
    }
}

}  // namespace

void test_rows_on_every_instruction_set() {
    const std::string before = instruction_set_name(chosen_instruction_set());
    for (const instruction_set level : supported_instruction_sets()) {
        CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        std::mt19937 random(4);
        for (const int64_t width : {1, 3, 16, 37, 64, 390}) {
            for (const int num_threads : {1, 3}) {
                check_norm_and_quantization(random, width, num_threads);
                check_activations(random, width, num_threads);
                check_lookup_and_pooling(random, width, num_threads);
            }
        }
    }
    CHECK(choose_instruction_set(before.c_str()).empty());
}

}  // namespace encoder_engine
