// The dense layer in float32 and bfloat16 on every instruction set: sums that are exact where they can
// be, rows the same in any company.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/cpu_features.h"
#include "cpu/packed_linear.h"
#include "tests/checks.h"

namespace encoder_engine {
namespace {

// Small integers: every product and sum of them is exact in either type.
struct drawn {
    drawn(std::mt19937& random, element_type type, int64_t count)
        : floats(static_cast<size_t>(count)), bytes(static_cast<size_t>(count * element_bytes(type))) {
        const size_t size = static_cast<size_t>(element_bytes(type));
        for (size_t i = 0; i < floats.size(); ++i) {
            floats[i] = static_cast<float>(static_cast<int>(random() % 3) - 1);
            std::memcpy(&bytes[i * size], reinterpret_cast<const char*>(&floats[i]) + 4 - size, size);
        }
    }
    std::vector<float> floats;
    std::vector<char> bytes;
};

float read(element_type type, const char* from, int64_t place) {
    const size_t size = static_cast<size_t>(element_bytes(type));
    float x = 0.0f;
    std::memcpy(reinterpret_cast<char*>(&x) + 4 - size, from + static_cast<size_t>(place) * size, size);
    return x;
}

// Leaves the output of all rows.
void check_each_row(packed_linear_call call, std::vector<char>& output) {
    call.num_threads = 3;
    packed_linear(call);
    const std::vector<char> together = output;
    const int64_t rows = call.num_rows, row_bytes = call.width * element_bytes(call.type);
    const char* const input = static_cast<const char*>(call.input);
    // One thread takes all panels in turn.
    call.num_threads = 1;
    packed_linear(call);
    CHECK(output == together);
    call.num_rows = 1;
    for (int64_t row = 0; row < rows; ++row) {
        call.input = input + row * call.row_bytes();
        call.output = output.data() + row * row_bytes;
        packed_linear(call);
    }
    CHECK(output == together);
}

void check_products(std::mt19937& random, element_type type, int64_t num_rows, int64_t depth,
                    int64_t width) {
    const int64_t size = element_bytes(type);
    const drawn input(random, type, num_rows * depth), weight(random, type, width * depth);
    const drawn bias(random, type, width);
    std::vector<char> memory(static_cast<size_t>(panels_bytes(width, depth * size)) + 64);
    char* const packed = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    pack_linear(type, weight.bytes.data(), bias.bytes.data(), width, depth, packed, 3);
    std::vector<char> again(weight.bytes.size());
    take_from_panels(packed, width, depth * size, again.data());
    CHECK(again == weight.bytes);

    std::vector<char> output(static_cast<size_t>(num_rows * width * size), '\x7f');
    packed_linear_call call = {type,          activation::none, input.bytes.data(), packed,
                               output.data(), num_rows,         depth,              width,
                               3};
    packed_linear(call);
    for (int64_t row = 0; row < num_rows; ++row) {
        for (int64_t feature = 0; feature < width; ++feature) {
            float sum = bias.floats[static_cast<size_t>(feature)];
            for (int64_t i = 0; i < depth; ++i) {
                sum += input.floats[static_cast<size_t>(row * depth + i)] *
                       weight.floats[static_cast<size_t>(feature * depth + i)];
            }
            // Sums below 256 in magnitude are bfloat16 too.
            CHECK(read(type, output.data(), row * width + feature) == sum);
        }
    }
    // Each row alone has the same bits as among others.
    for (const activation function : {activation::none, activation::gelu}) {
        call.function = function;
        check_each_row(call, output);
    }
    if (width % (2 * kPanelWidth) != 0) return;
    call.gated = true;
    call.width = width / 2;
    for (const activation function : {activation::none, activation::gelu, activation::silu}) {
        packed_linear_call product = call;
        product.gated = false;
        product.function = activation::none;
        product.width = width;
        packed_linear(product);
        std::vector<char> expected(output.size() / 2);
        activate_rows({type, function, true, output.data(), nullptr, expected.data(), num_rows,
                       width / 2, 1});
        call.function = function;
        output.resize(expected.size());
        check_each_row(call, output);
        CHECK(output == expected);
        output.resize(2 * expected.size());
    }
}

}  // namespace

void test_packed_linear_on_every_instruction_set() {
    const std::string before = instruction_set_name(chosen_instruction_set());
    for (const instruction_set level : supported_instruction_sets()) {
        CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        std::mt19937 random(6);
        for (const element_type type : {element_type::float32, element_type::bfloat16}) {
            for (const int64_t num_rows : {1, 8, 15, 33, 150}) {
                check_products(random, type, num_rows, 37, 21);
                check_products(random, type, num_rows, 230, 200);
            }
            for (const int64_t num_rows : {1, 33, 150}) {
                check_products(random, type, num_rows, 230, 256);
                check_products(random, type, num_rows, 2100, 384);
            }
            check_products(random, type, 33, 2100, 200);
            check_products(random, type, 17, 1, 1);
            check_products(random, type, 3, 0, 70);
        }
    }
    CHECK(choose_instruction_set(before.c_str()).empty());
}

}  // namespace encoder_engine
