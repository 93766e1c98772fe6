// Turns the core's status values into the package's Python exceptions.
#pragma once

#include <pybind11/pybind11.h>

#include "text/status.h"
#include "text/text_view.h"

namespace encoder_engine {

// Raises encoder_engine.errors.<type>(message, row=row); no row where it is negative.
[[noreturn]] void raise_error(const char* type, const std::string& message, int64_t row);

// Raises the exception of a failed status; `text`: the Python str of the row in error.
[[noreturn]] void raise_status(const status& failed, pybind11::handle text,
                               const char* what_row);

// Raises TextError for an object that is not a str; word is -1 for a text in one piece.
[[noreturn]] void raise_not_text(pybind11::handle object, int64_t row, int64_t word,
                                 const char* what);

// Raises TextError for an object that is not a list of words.
[[noreturn]] void raise_not_words(pybind11::handle object, int64_t row, const char* what);

// Borrows a str's buffer.
text_view view_of(PyObject* text);

}  // namespace encoder_engine
