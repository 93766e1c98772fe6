// Converts Python arguments of the CPU kernels: tensors by address, choices by name.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "cpu/element.h"
#include "cpu/rows.h"

namespace encoder_engine {

inline element_type type_of(bool half) { return half ? element_type::bfloat16 : element_type::float32; }

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

inline activation activation_of(const std::string& name) {
    if (name == "none") return activation::none;
    if (name == "gelu") return activation::gelu;
    if (name == "gelu_tanh") return activation::gelu_tanh;
    if (name == "silu") return activation::silu;
    throw pybind11::value_error("no activation '" + name + "'; there are none, gelu, gelu_tanh, silu");
}

}  // namespace encoder_engine
