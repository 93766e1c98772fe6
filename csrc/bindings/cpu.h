// Registers the CPU kernels with the module.
#pragma once

#include <pybind11/pybind11.h>

namespace encoder_engine {

void bind_cpu(pybind11::module_& module);
void bind_plan(pybind11::module_& module);

}  // namespace encoder_engine
