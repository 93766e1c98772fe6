// Attention on every instruction set against plain loops, and with the same bits on any threads.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "cpu/attention.h"
#include "tests/checks.h"

namespace encoder_engine {
namespace {

struct attention_case {
    std::vector<int32_t> cu_seqlens;
    int64_t num_heads, head_dim;
    std::vector<float> joint;  // [tokens, 3, heads, head size]

    int64_t num_tokens() const { return cu_seqlens.back(); }
    int64_t width() const { return num_heads * head_dim; }
    const float* row(int which, int64_t token, int64_t head) const {
        return joint.data() + (3 * token + which) * width() + head * head_dim;
    }
};

float widen(bfloat16 x) {
    const uint32_t bits = uint32_t{x.bits} << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

attention_case draw(std::mt19937& random) {
    attention_case drawn{{0}, 1 + static_cast<int64_t>(random() % 3), 1 + static_cast<int64_t>(random() % 70), {}};
    for (uint32_t i = random() % 4; i < 5; ++i) {
        drawn.cu_seqlens.push_back(drawn.cu_seqlens.back() + static_cast<int32_t>(random() % 150));
    }
    std::normal_distribution<float> normal;
    drawn.joint.resize(static_cast<size_t>(3 * drawn.num_tokens() * drawn.width()));
    for (float& x : drawn.joint) x = widen(narrow(normal(random)));
    return drawn;
}

// What statistics are written to; every third token is marked.
struct statistics_memory {
    std::vector<uint8_t> marks;
    std::vector<float> values;
    std::vector<int64_t> offsets;

    explicit statistics_memory(const attention_case& given)
        : values(static_cast<size_t>(given.num_tokens() * given.num_heads * 7), NAN),
          offsets(static_cast<size_t>(given.num_tokens() * given.num_heads)) {
        for (int64_t i = 0; i < given.num_tokens(); ++i) marks.push_back(i % 3 == 0);
    }
};

std::vector<float> compute(const attention_case& given, int num_threads,
                           statistics_memory* statistics = nullptr) {
    std::vector<float> output(static_cast<size_t>(given.num_tokens() * given.width()), NAN);
    const auto rows = [&](int which) {
        return head_rows{given.joint.data() + which * given.width(), 3 * given.width(), given.head_dim};
    };
    attention_call call{element_type::float32, rows(0), rows(1), rows(2), output.data(),
                        given.cu_seqlens.data(), static_cast<int64_t>(given.cu_seqlens.size()) - 1,
                        given.num_heads, given.num_heads, given.head_dim, 0.25f, -1, false, nullptr, num_threads};
    if (statistics != nullptr) {
        call.statistics = {statistics->marks.data(), 1, statistics->values.data(), statistics->offsets.data()};
    }
    attention(call);
    return output;
}

std::vector<float> compute_in_bfloat16(const attention_case& given, int num_threads) {
    std::vector<bfloat16> joint;
    for (const float x : given.joint) joint.push_back(narrow(x));
    std::vector<bfloat16> output(static_cast<size_t>(given.num_tokens() * given.width()));
    const auto rows = [&](int which) {
        return head_rows{joint.data() + which * given.width(), 3 * given.width(), given.head_dim};
    };
    attention({element_type::bfloat16, rows(0), rows(1), rows(2), output.data(),
               given.cu_seqlens.data(), static_cast<int64_t>(given.cu_seqlens.size()) - 1,
               given.num_heads, given.num_heads, given.head_dim, 0.25f, -1, false, nullptr, num_threads});
    std::vector<float> wide;
    for (const bfloat16 x : output) wide.push_back(widen(x));
    return wide;
}

// The weights of a query in double precision.
std::vector<double> weigh_plainly(const attention_case& given, int64_t first, int64_t last,
                                  int64_t token, int64_t head) {
    std::vector<double> weights;
    double largest = -INFINITY, sum = 0.0;
    for (int64_t key = first; key < last; ++key) {
        double score = 0.0;
        for (int64_t d = 0; d < given.head_dim; ++d) {
            score += double{given.row(0, token, head)[d]} * double{given.row(1, key, head)[d]};
        }
        weights.push_back(0.25 * score);
        largest = std::max(largest, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    for (double& weight : weights) weight /= sum;
    return weights;
}

// One output row in double precision.
std::vector<double> attend_plainly(const attention_case& given, int64_t first, int64_t last,
                                   int64_t token, int64_t head) {
    std::vector<double> mixed(static_cast<size_t>(given.head_dim));
    const std::vector<double> weights = weigh_plainly(given, first, last, token, head);
    for (int64_t key = first; key < last; ++key) {
        for (int64_t d = 0; d < given.head_dim; ++d) {
            mixed[static_cast<size_t>(d)] += weights[static_cast<size_t>(key - first)] *
                                             double{given.row(2, key, head)[d]};
        }
    }
    return mixed;
}

// The values of a query's statistics in double precision.
std::vector<double> summarise_plainly(const attention_case& given, int64_t first, int64_t last,
                                      int64_t token, int64_t head) {
    const std::vector<double> weights = weigh_plainly(given, first, last, token, head);
    std::vector<double> values(7);
    for (int64_t key = first; key < last; ++key) {
        const double weight = weights[static_cast<size_t>(key - first)];
        const int64_t distance = key - token;
        values[0] = std::max(values[0], weight);
        values[1] -= weight > 0.0 ? weight * std::log(weight) : 0.0;
        values[2] += weight * static_cast<double>(std::abs(distance));
        if (std::abs(distance) <= 1) values[static_cast<size_t>(4 + distance)] = weight;
        if (key % 3 == 0) values[6] += weight;
    }
    return values;
}

}  // namespace

void test_attention_statistics_on_every_instruction_set() {
    const std::string before = instruction_set_name(chosen_instruction_set());
    for (const instruction_set level : supported_instruction_sets()) {
        CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        std::mt19937 random(4);
        for (int round = 0; round < 4; ++round) {
            const attention_case given = draw(random);
            statistics_memory one(given), many(given);
            const std::vector<float> output = compute(given, 1, &one);
            CHECK(output == compute(given, 1));
            CHECK(output == compute(given, 3, &many));
            CHECK(one.values == many.values);
            CHECK(one.offsets == many.offsets);
            for (size_t s = 0; s + 1 < given.cu_seqlens.size(); ++s) {
                const int64_t first = given.cu_seqlens[s], last = given.cu_seqlens[s + 1];
                for (int64_t token = first; token < last; token += 7) {
                    const int64_t head = token % given.num_heads;
                    const size_t place = static_cast<size_t>(token * given.num_heads + head);
                    const std::vector<double> truth = summarise_plainly(given, first, last, token, head);
                    for (size_t n = 0; n < truth.size(); ++n) {
                        // Distances, up to 150, are the largest.
                        CHECK(std::abs(double{one.values[7 * place + n]} - truth[n]) < (n == 2 ? 1e-3 : 1e-5));
                    }
                    const int64_t best = token - first + one.offsets[place];
                    const std::vector<double> weights = weigh_plainly(given, first, last, token, head);
                    CHECK(best >= 0 && best < last - first);
                    CHECK(truth[0] - weights.at(static_cast<size_t>(best)) < 1e-5);
                }
            }
        }
    }
    CHECK(choose_instruction_set(before.c_str()).empty());
}

void test_attention_on_every_instruction_set() {
    const std::string before = instruction_set_name(chosen_instruction_set());
    for (const instruction_set level : supported_instruction_sets()) {
        CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        std::mt19937 random(3);
        for (int round = 0; round < 8; ++round) {
            const attention_case given = draw(random);
            const std::vector<float> one = compute(given, 1), many = compute(given, 3);
            CHECK(std::memcmp(one.data(), many.data(), one.size() * sizeof(float)) == 0);
            const std::vector<float> half = compute_in_bfloat16(given, 1);
            CHECK(half == compute_in_bfloat16(given, 3));
            for (size_t s = 0; s + 1 < given.cu_seqlens.size(); ++s) {
                const int64_t first = given.cu_seqlens[s], last = given.cu_seqlens[s + 1];
                for (int64_t token = first; token < last; token += 7) {
                    const int64_t head = token % given.num_heads;
                    const std::vector<double> truth = attend_plainly(given, first, last, token, head);
                    const float* found = one.data() + token * given.width() + head * given.head_dim;
                    for (size_t d = 0; d < truth.size(); ++d) {
                        CHECK(std::abs(double{found[d]} - truth[d]) < 1e-5);
                        const size_t place = static_cast<size_t>(found - one.data()) + d;
                        // Weights and what is mixed of them, up to 4, are rounded to 8 bits.
                        CHECK(std::abs(double{half[place]} - truth[d]) < 0x1p-5);
                    }
                }
            }
        }
    }
    CHECK(choose_instruction_set(before.c_str()).empty());
}

}  // namespace encoder_engine
