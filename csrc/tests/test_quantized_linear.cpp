// The dense layer in integers on every instruction set: exact sums, rows the same in any company.
#include <cmath>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "cpu/packed_linear.h"
#include "cpu/quantized_linear.h"
#include "tests/checks.h"

namespace encoder_engine {
namespace {

struct aligned_bytes {
    explicit aligned_bytes(int64_t size)
        : memory(static_cast<size_t>(size) + 64),
          data(memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64)) {}
    std::vector<int8_t> memory;
    int8_t* data;
};

// Rows and a weight of every value, and the weight packed.
struct drawn_operands {
    std::vector<uint8_t> input;
    std::vector<int8_t> plain;
    aligned_bytes packed;

    drawn_operands(std::mt19937& random, int64_t num_rows, int64_t depth, int64_t width)
        : input(static_cast<size_t>(num_rows * depth)),
          plain(static_cast<size_t>(width * depth)),
          packed(panels_bytes(width, depth)) {
        // A fourth are the extremes, whose products are the largest.
        for (uint8_t& x : input) x = static_cast<uint8_t>(random() % 4 == 0 ? 0 : random() % 256);
        for (int8_t& x : plain) {
            x = static_cast<int8_t>(random() % 4 == 0 ? -128 : static_cast<int>(random() % 256) - 128);
        }
        pack_weight(plain.data(), width, depth, packed.data, 1);
    }
};

void check_products(std::mt19937& random, int64_t num_rows, int64_t depth, int64_t width) {
    const drawn_operands drawn(random, num_rows, depth, width);
    const auto& [input, plain, packed] = drawn;
    std::vector<int8_t> again(plain.size());
    take_from_panels(packed.data, width, depth, again.data());
    CHECK(again == plain);

    const std::vector<float> row_scales(static_cast<size_t>(num_rows), 1.0f);
    const std::vector<float> scales(static_cast<size_t>(width), 1.0f), bias(scales.size(), 2.0f);
    std::vector<float> output(static_cast<size_t>(num_rows * width), NAN), first(output.size(), NAN);
    quantized_linear_call call = {element_type::float32, activation::none, input.data(),
                                  row_scales.data(), packed.data, scales.data(), bias.data(),
                                  output.data(), nullptr, nullptr, num_rows, depth, width, 3};
    quantized_linear(call);
    for (int64_t row = 0; row < num_rows; ++row) {
        for (int64_t feature = 0; feature < width; ++feature) {
            int32_t sum = 0;
            for (int64_t i = 0; i < depth; ++i) {
                sum += (input[static_cast<size_t>(row * depth + i)] - 128) *
                       plain[static_cast<size_t>(feature * depth + i)];
            }
            CHECK(output[static_cast<size_t>(row * width + feature)] == static_cast<float>(sum) + 2.0f);
        }
    }
    // Alone, a row has the same bits; so has it as bytes.
    call.num_rows = 1;
    call.num_threads = 1;
    call.output = first.data();
    quantized_linear(call);
    for (int64_t feature = 0; feature < width; ++feature) {
        CHECK(first[static_cast<size_t>(feature)] == output[static_cast<size_t>(feature)]);
    }
    call.num_rows = num_rows;
    call.num_threads = 3;
    std::vector<uint8_t> bytes(output.size()), expected(output.size());
    std::vector<float> found_scales(row_scales.size()), expected_scales(row_scales.size());
    call.quantized = bytes.data();
    call.scales = found_scales.data();
    quantized_linear(call);
    quantize_rows({element_type::float32, output.data(), expected.data(), expected_scales.data(),
                   num_rows, width, 1});
    CHECK(bytes == expected && found_scales == expected_scales);
}

// A gated product is its halves' product, activated; so it is as bytes.
void check_gates(std::mt19937& random, element_type type, int64_t num_rows, int64_t depth,
                 int64_t width) {
    const drawn_operands drawn(random, num_rows, depth, 2 * width);
    const std::vector<float> row_scales(static_cast<size_t>(num_rows), 0.01f);
    std::vector<float> scales(static_cast<size_t>(2 * width)), bias(scales.size());
    for (float& x : scales) x = 1e-3f * static_cast<float>(random() % 8 + 1);
    for (float& x : bias) x = static_cast<float>(random() % 5) - 2.0f;
    std::vector<char> halves(static_cast<size_t>(num_rows * 2 * width * element_bytes(type)), '\x7f');
    std::vector<char> expected(halves.size() / 2, '\x7f'), output = expected;
    quantized_linear_call call = {type, activation::none, drawn.input.data(), row_scales.data(),
                                  drawn.packed.data, scales.data(), bias.data(), halves.data(), nullptr,
                                  nullptr, num_rows, depth, 2 * width, 3};
    quantized_linear(call);
    call.gated = true;
    call.width = width;
    call.output = output.data();
    for (const activation function : {activation::none, activation::gelu, activation::silu}) {
        activate_rows({type, function, true, halves.data(), nullptr, expected.data(), num_rows, width, 1});
        call.function = function;
        call.quantized = nullptr;
        quantized_linear(call);
        CHECK(output == expected);
        std::vector<uint8_t> bytes(static_cast<size_t>(num_rows * width)), expected_bytes(bytes.size());
        std::vector<float> found_scales(row_scales.size()), expected_scales(row_scales.size());
        call.quantized = bytes.data();
        call.scales = found_scales.data();
        quantized_linear(call);
        quantize_rows({type, expected.data(), expected_bytes.data(), expected_scales.data(), num_rows,
                       width, 1});
        CHECK(bytes == expected_bytes && found_scales == expected_scales);
    }
}

}  // namespace

void test_quantized_linear_on_every_instruction_set() {
    const std::string before = instruction_set_name(chosen_instruction_set());
    for (const instruction_set level : supported_instruction_sets()) {
        CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        std::mt19937 random(5);
        for (const int64_t num_rows : {1, 8, 15, 33, 150}) {
            check_products(random, num_rows, 37, 21);
            check_products(random, num_rows, 640, 300);
        }
        for (const element_type type : {element_type::float32, element_type::bfloat16}) {
            for (const int64_t num_rows : {1, 8, 33, 150}) check_gates(random, type, num_rows, 230, 192);
        }
        check_products(random, 17, 1100, 70);
        check_products(random, 4, 512, 70);
        check_products(random, 17, 1, 1);
    }
    CHECK(choose_instruction_set(before.c_str()).empty());
}

}  // namespace encoder_engine
