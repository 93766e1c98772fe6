// Rows of token ids as Python lists and as rectangles.
#pragma once

#include <pybind11/pybind11.h>

namespace encoder_engine {

void bind_rows(pybind11::module_& module);

}  // namespace encoder_engine
