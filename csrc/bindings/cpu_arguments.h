// Converts Python arguments of the CPU kernels: tensors by address, choices by name.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "cpu/attention.h"
#include "cpu/conversion.h"
#include "cpu/element.h"
#include "cpu/rows.h"
#include "cpu/static_rows.h"

namespace encoder_engine {

inline element_type type_of(bool half) { return half ? element_type::bfloat16 : element_type::float32; }

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

// An address, and the elements between vectors and between heads.
using vectors_argument = std::tuple<uintptr_t, int64_t, int64_t>;

inline distance_vectors distances_of(const vectors_argument& keys, const vectors_argument& queries,
                                     uintptr_t entries, int64_t reach) {
    const auto rows = [](const vectors_argument& x) {
        return head_rows{at<void>(std::get<0>(x)), std::get<1>(x), std::get<2>(x)};
    };
    return {rows(keys), rows(queries), at<int32_t>(entries), reach};
}

inline activation activation_of(const std::string& name) {
    if (name == "none") return activation::none;
    if (name == "gelu") return activation::gelu;
    if (name == "gelu_tanh") return activation::gelu_tanh;
    if (name == "silu") return activation::silu;
    if (name == "relu") return activation::relu;
    if (name == "tanh") return activation::tanh;
    throw pybind11::value_error("no activation '" + name +
                                "'; there are none, gelu, gelu_tanh, silu, relu, tanh");
}

inline table_type table_type_of(const std::string& name) {
    if (name == "float32") return table_type::float32;
    if (name == "float16") return table_type::float16;
    if (name == "bfloat16") return table_type::bfloat16;
    if (name == "int8") return table_type::int8;
    throw pybind11::value_error("no table type '" + name +
                                "'; there are float32, float16, bfloat16, int8");
}

inline pooling_mode pooling_mode_of(const std::string& name) {
    if (name == "cls") return pooling_mode::cls;
    if (name == "lasttoken") return pooling_mode::lasttoken;
    if (name == "max") return pooling_mode::max;
    if (name == "mean") return pooling_mode::mean;
    if (name == "mean_sqrt_len_tokens") return pooling_mode::mean_sqrt_len_tokens;
    if (name == "weightedmean") return pooling_mode::weightedmean;
    throw pybind11::value_error("no pooling mode '" + name +
                                "'; there are cls, lasttoken, max, mean, mean_sqrt_len_tokens, "
                                "weightedmean");
}

}  // namespace encoder_engine
