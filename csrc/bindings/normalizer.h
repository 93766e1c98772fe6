// The normalizers of a tokenizer.json, from Python.
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "text/normalizer/normalizer.h"

namespace encoder_engine {

// Each step is its name, then what it takes.
std::vector<normalizer_step> read_steps(const std::vector<pybind11::tuple>& steps);

void bind_normalizer(pybind11::module_& module);

}  // namespace encoder_engine
