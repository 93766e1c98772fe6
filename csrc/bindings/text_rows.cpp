// Reads rows from buffers, with the GIL released.
#include "bindings/text_rows.h"

#include <pybind11/stl.h>

#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "bindings/errors.h"
#include "bindings/parts.h"
#include "common/cpu_count.h"

namespace py = pybind11;

namespace encoder_engine {

py::object row_text(const bound_rows& self, int64_t row) {
    const text_view& view = self.rows.views[static_cast<size_t>(row)];
    const int kind = view.width == char_width::four  ? PyUnicode_4BYTE_KIND
                     : view.width == char_width::two ? PyUnicode_2BYTE_KIND
                                                     : PyUnicode_1BYTE_KIND;
    PyObject* text = PyUnicode_FromKindAndData(kind, view.data, static_cast<Py_ssize_t>(view.length));
    if (text == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(text);
}

namespace {

py::tuple add_lines_of(bound_rows& self, const py::buffer& file, int64_t begin, int64_t wanted,
                       const std::optional<std::string>& column, int64_t most_bytes,
                       const std::optional<int64_t>& most_characters) {
    auto info = std::make_unique<py::buffer_info>(file.request());
    if (info->itemsize != 1 || info->ndim != 1 || begin < 0 || begin > info->size) {
        throw py::value_error("expected the bytes of a file and a place in it");
    }
    const std::string_view bytes(static_cast<const char*>(info->ptr), static_cast<size_t>(info->size));
    line_rules rules;
    rules.format = column ? line_format::json : line_format::text;
    rules.key = column.value_or("");
    rules.most_bytes = most_bytes;
    rules.most_characters = most_characters.value_or(std::numeric_limits<int64_t>::max());
    const size_t before = self.rows.views.size();
    int64_t end = begin;
    {
        const py::gil_scoped_release unlocked;
        end = add_lines(bytes, begin, wanted, rules, num_usable_cpus(), self.rows);
    }
    self.files.push_back(std::move(info));
    return py::make_tuple(end, self.rows.views.size() - before);
}

void add_text(bound_rows& self, const py::str& text, int64_t num_bytes) {
    self.rows.views.push_back(view_of(text.ptr()));
    self.rows.num_bytes += num_bytes;
    self.texts.push_back(text);
}

py::object item(const bound_rows& self, int64_t row) {
    const auto size = static_cast<int64_t>(self.rows.views.size());
    if (row < -size || row >= size) throw py::index_error("there is no such row");
    return row_text(self, row < 0 ? row + size : row);
}

}  // namespace

void bind_text_rows(py::module_& module) {
    py::class_<bound_rows>(module, "TextRows")
        .def(py::init<>())
        .def("add_lines", &add_lines_of, py::arg("file"), py::arg("begin"), py::arg("wanted"), py::kw_only(),
             py::arg("column"), py::arg("most_bytes"), py::arg("most_characters"))
        .def("add_text", &add_text, py::arg("text"), py::arg("num_bytes"))
        .def("__len__", [](const bound_rows& self) { return self.rows.views.size(); })
        .def("__getitem__", &item, py::arg("row"))
        .def_property_readonly("num_bytes", [](const bound_rows& self) { return self.rows.num_bytes; });
}

}  // namespace encoder_engine
