// Reads normalizers, and binds them by themselves.
#include "bindings/normalizer.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/errors.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

std::vector<uint32_t> code_points(const py::handle& text) {
    const auto codes = text.cast<std::u32string>();
    return {codes.begin(), codes.end()};
}

normalizer_step make_step(normalizer_kind kind) {
    normalizer_step step;
    step.kind = kind;
    return step;
}

// One normalizer: its name, then what it takes.
normalizer_step read_step(const py::tuple& parts) {
    static const std::pair<const char*, normalizer_kind> kPlain[] = {
        {"NFC", normalizer_kind::nfc},
        {"NFD", normalizer_kind::nfd},
        {"NFKC", normalizer_kind::nfkc},
        {"NFKD", normalizer_kind::nfkd},
        {"StripAccents", normalizer_kind::strip_accents},
        {"Lowercase", normalizer_kind::lowercase},
    };
    const auto name = parts[0].cast<std::string>();
    for (const auto& [known, kind] : kPlain) {
        if (name == known) return make_step(kind);
    }
    normalizer_step step;
    if (name == "Precompiled") {
        step = make_step(normalizer_kind::charsmap);
        step.rules = std::make_shared<charsmap>(std::string(parts[1].cast<py::bytes>()));
    } else if (name == "Replace") {
        step = make_step(normalizer_kind::replace);
        step.pattern = code_points(parts[1]);
        step.content = code_points(parts[2]);
    } else if (name == "ReplaceRuns") {
        step = make_step(normalizer_kind::replace_runs);
        step.white_space = parts[1].cast<bool>();
        step.least = parts[2].cast<int64_t>();
        step.pattern = code_points(parts[3]);
        step.content = code_points(parts[4]);
    } else if (name == "Strip") {
        step = make_step(normalizer_kind::strip);
        step.left = parts[1].cast<bool>();
        step.right = parts[2].cast<bool>();
    } else if (name == "Prepend") {
        step = make_step(normalizer_kind::prepend);
        step.content = code_points(parts[1]);
    } else {
        throw py::value_error("no normalizer step is called " + name);
    }
    return step;
}

// The normalizers alone: for added tokens, and for the tests that compare every code point.
class python_normalizer {
public:
    explicit python_normalizer(const std::vector<py::tuple>& steps) : normalizer_(read_steps(steps)) {}

    py::object normalize(const py::object& text) const {
        if (!PyUnicode_Check(text.ptr())) raise_not_text(text, -1, -1, "text");
        std::vector<uint32_t> codes;
        const status result = normalize_by_steps(view_of(text.ptr()), normalizer_, codes);
        if (!result.ok()) raise_status(result, text, "text");
        return py::reinterpret_steal<py::object>(PyUnicode_FromKindAndData(
            PyUnicode_4BYTE_KIND, codes.data(), static_cast<Py_ssize_t>(codes.size())));
    }

private:
    step_normalizer normalizer_;
};

}  // namespace

std::vector<normalizer_step> read_steps(const std::vector<py::tuple>& steps) {
    std::vector<normalizer_step> out;
    for (const py::tuple& step : steps) out.push_back(read_step(step));
    return out;
}

void bind_normalizer(py::module_& module) {
    py::class_<python_normalizer>(module, "StepNormalizer")
        .def(py::init<const std::vector<py::tuple>&>(), py::arg("steps"))
        .def("normalize", &python_normalizer::normalize, py::arg("text"));
}

}  // namespace encoder_engine
