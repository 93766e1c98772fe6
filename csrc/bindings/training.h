// Binds the CPU kernels of training.
#pragma once

#include <pybind11/pybind11.h>

namespace encoder_engine {

void bind_training(pybind11::module_& module);

}  // namespace encoder_engine
