// Registers the makers of encoders beside WordPiece's.
#pragma once

#include <pybind11/pybind11.h>

namespace encoder_engine {

void bind_bpe(pybind11::module_& module);
void bind_unigram(pybind11::module_& module);

}  // namespace encoder_engine
