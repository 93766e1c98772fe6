// Binds the search for sentences: texts to arrays of spans, with the GIL released in between.
#include <pybind11/numpy.h>

#include <vector>

#include "bindings/errors.h"
#include "bindings/parts.h"
#include "text/sentences.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

using long_array = py::array_t<int64_t>;

// Spans [S, 2] of the sentences of all texts, and the places [n + 1] where each text's begin.
py::tuple sentences_of(const py::sequence& texts) {
    const py::tuple items(texts);  // owns the texts meanwhile
    std::vector<text_view> views;
    views.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
        PyObject* text = PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i));
        if (!PyUnicode_Check(text)) raise_not_text(text, static_cast<int64_t>(i), -1, "text");
        views.push_back(view_of(text));
    }
    std::vector<sentence_span> spans;
    long_array starts(static_cast<py::ssize_t>(views.size() + 1));
    int64_t* start = starts.mutable_data();
    *start = 0;
    {
        const py::gil_scoped_release unlocked;
        for (const text_view& view : views) {
            find_sentences(view, spans);
            *++start = static_cast<int64_t>(spans.size());
        }
    }
    long_array out({static_cast<py::ssize_t>(spans.size()), py::ssize_t{2}});
    int64_t* to = out.mutable_data();
    for (const sentence_span& span : spans) {
        *to++ = span.begin;
        *to++ = span.end;
    }
    return py::make_tuple(out, starts);
}

}  // namespace

void bind_sentences(py::module_& module) {
    module.def("find_sentences", &sentences_of, py::arg("texts"));
}

}  // namespace encoder_engine
