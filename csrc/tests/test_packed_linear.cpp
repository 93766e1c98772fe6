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
        call.input = input.bytes.data();
        call.output = output.data();
        call.num_rows = num_rows;
        call.num_threads = 3;
        packed_linear(call);
        const std::vector<char> together = output;
        call.num_rows = 1;
        call.num_threads = 1;
        for (int64_t row = 0; row < num_rows; ++row) {
            call.input = input.bytes.data() + row * depth * size;
            call.output = output.data() + row * width * size;
            packed_linear(call);
        }
        CHECK(output == together);
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
            check_products(random, type, 33, 2100, 200);
            check_products(random, type, 17, 1, 1);
            check_products(random, type, 3, 0, 70);
        }
    }
    CHECK(choose_instruction_set(before.c_str()).empty());
}

}  // namespace encoder_engine
