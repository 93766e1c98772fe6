// Registers vocabularies and the readers of tokenizer.json.
#pragma once

#include <pybind11/pybind11.h>

namespace encoder_engine {

void bind_vocabulary(pybind11::module_& module);

}  // namespace encoder_engine
