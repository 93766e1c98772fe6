// Rows of files between Python and C++: encoders take them in place of a list of strings.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "text/files/text_rows.h"

namespace encoder_engine {

struct bound_rows {
    text_rows rows;
    std::vector<std::unique_ptr<pybind11::buffer_info>> files;  // in which views lie
    std::vector<pybind11::object> texts;                        // likewise
};

// A row as a str.
pybind11::object row_text(const bound_rows& self, int64_t row);

}  // namespace encoder_engine
