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

std::vector<float> compute(const attention_case& given, int num_threads) {
    std::vector<float> output(static_cast<size_t>(given.num_tokens() * given.width()), NAN);
    const auto rows = [&](int which) {
        return head_rows{given.joint.data() + which * given.width(), 3 * given.width(), given.head_dim};
    };
    attention({element_type::float32, rows(0), rows(1), rows(2), output.data(),
               given.cu_seqlens.data(), static_cast<int64_t>(given.cu_seqlens.size()) - 1,
               given.num_heads, given.num_heads, given.head_dim, 0.25f, -1, false, nullptr, num_threads});
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

// One output row in double precision.
std::vector<double> attend_plainly(const attention_case& given, int64_t first, int64_t last,
                                   int64_t token, int64_t head) {
    std::vector<double> mixed(static_cast<size_t>(given.head_dim)), weights;
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
    for (int64_t key = first; key < last; ++key) {
        for (int64_t d = 0; d < given.head_dim; ++d) {
            mixed[static_cast<size_t>(d)] += weights[static_cast<size_t>(key - first)] / sum *
                                             double{given.row(2, key, head)[d]};
        }
    }
    return mixed;
}

}  // namespace

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
