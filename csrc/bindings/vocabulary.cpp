// Vocabularies between Python and C++: read from a file's bytes, or made of Python's strings.
#include "bindings/parts.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe/model/merge_list.h"
#include "text/json/json_number.h"
#include "text/json/vocabulary_reader.h"
#include "text/vocabulary.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

using id_array = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

std::string_view utf8_of(py::handle text) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (bytes == nullptr) throw py::error_already_set();
    return {bytes, static_cast<size_t>(size)};
}

py::object text_of(std::string_view utf8) {
    PyObject* text = PyUnicode_DecodeUTF8(utf8.data(), static_cast<Py_ssize_t>(utf8.size()), nullptr);
    if (text == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(text);
}

std::shared_ptr<vocabulary> make_vocabulary(const py::iterable& texts, const id_array& ids) {
    token_list tokens;
    tokens.reserve(static_cast<size_t>(ids.size()), 0);
    py::ssize_t count = 0;
    for (const py::handle text : texts) {
        if (count < ids.size()) tokens.add(utf8_of(text), ids.data()[count]);
        ++count;
    }
    if (count != ids.size()) {
        throw py::value_error("expected as many texts as ids, got " + std::to_string(count) +
                              " texts and " + std::to_string(ids.size()) + " ids");
    }
    const py::gil_scoped_release unlocked;
    return std::make_shared<vocabulary>(std::move(tokens));
}

// The place of a text; one with lone surrogates is in no vocabulary.
int64_t place_of(const vocabulary& self, const py::str& text) {
    Py_ssize_t size = 0;
    const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (bytes == nullptr) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw py::error_already_set();
        PyErr_Clear();
        return -1;
    }
    return self.find({bytes, static_cast<size_t>(size)});
}

std::optional<int32_t> id_of(const vocabulary& self, const py::str& text) {
    const int64_t place = place_of(self, text);
    if (place < 0) return std::nullopt;
    return self.tokens().id(static_cast<size_t>(place));
}

// Of a token that occurs twice only the last id counts.
py::object token_of(const vocabulary& self, int64_t number) {
    const int64_t place = self.find_id(number);
    if (place < 0) return py::none();
    const std::string_view text = self.tokens().text(static_cast<size_t>(place));
    return self.find(text) == place ? text_of(text) : py::none();
}

py::object text_at(const vocabulary& self, size_t place) {
    if (place >= self.tokens().size()) throw py::index_error("the vocabulary has no such place");
    return text_of(self.tokens().text(place));
}

py::list all_texts(const vocabulary& self) {
    const size_t size = self.tokens().size();
    py::list out(size);
    for (size_t i = 0; i < size; ++i) out[i] = text_of(self.tokens().text(i));
    return out;
}

py::array_t<int32_t> all_ids(const vocabulary& self) {
    const token_list& tokens = self.tokens();
    py::array_t<int32_t> ids(static_cast<py::ssize_t>(tokens.size()));
    for (size_t place = 0; place < tokens.size(); ++place) ids.mutable_data()[place] = tokens.id(place);
    return ids;
}

py::bool_ has_lines(const vocabulary& self, const py::bytes& file) {
    return self.has_lines(static_cast<std::string_view>(file));
}

std::unique_ptr<merge_list> make_merges(std::shared_ptr<vocabulary> tokens, const py::iterable& parts) {
    auto merges = std::make_shared<std::vector<bpe_merge>>();
    std::string whole;
    const auto id_of = [&](std::string_view text) {
        const int64_t place = tokens->find(text);
        return place < 0 ? -1 : tokens->tokens().id(static_cast<size_t>(place));
    };
    int32_t left = -1;
    bool has_left = false;
    for (const py::handle part : parts) {
        const std::string_view text = utf8_of(part);
        has_left = !has_left;
        if (has_left) {
            left = id_of(text);
            whole = text;
        } else {
            merges->push_back({left, id_of(text), id_of(whole.append(text))});
        }
    }
    if (has_left) throw py::value_error("a merge has two parts");
    return std::make_unique<merge_list>(std::move(tokens), std::move(merges));
}

// The parts of a merge; the vocabulary's ids ascend.
py::tuple texts_of(const merge_list& self, const bpe_merge& merge) {
    const token_list& tokens = self.tokens().tokens();
    const auto text = [&](int32_t id) {
        const int64_t place = self.tokens().find_id(id);
        if (place < 0) throw py::index_error("the vocabulary lacks a part of a merge");
        return text_of(tokens.text(static_cast<size_t>(place)));
    };
    return py::make_tuple(text(merge.left), text(merge.right));
}

py::list all_merges(const merge_list& self) {
    const auto merges = self.merges();
    py::list out(merges->size());
    for (size_t rank = 0; rank < merges->size(); ++rank) out[rank] = texts_of(self, (*merges)[rank]);
    return out;
}

// The places in the file of the vocabulary and of the merges (equal ones if there are none), the
// vocabulary, its scores, and the merges; None for what there is not.
py::object read_vocabulary(const py::bytes& file) {
    json_vocabulary found;
    const auto bytes = static_cast<std::string_view>(file);
    {
        const py::gil_scoped_release unlocked;
        found = read_json_vocabulary(bytes);
    }
    if (found.tokens == nullptr) return py::none();
    py::object scores = py::none();
    if (!found.scores.empty()) {
        auto* values = new std::vector<double>(std::move(found.scores));
        const py::capsule owner(values, [](void* p) { delete static_cast<std::vector<double>*>(p); });
        scores = py::array_t<double>(static_cast<py::ssize_t>(values->size()), values->data(), owner);
    }
    std::unique_ptr<merge_list> merges;
    if (found.merges != nullptr) merges = std::make_unique<merge_list>(found.tokens, found.merges);
    return py::make_tuple(std::vector<size_t>{found.begin, found.end, found.merges_begin, found.merges_end},
                          found.tokens, scores, std::move(merges));
}

double read_number(const py::str& text) {
    const std::string_view bytes = utf8_of(text);
    return read_json_number(bytes.data(), bytes.size());
}

}  // namespace

void bind_vocabulary(py::module_& module) {
    py::class_<vocabulary, std::shared_ptr<vocabulary>>(module, "Vocabulary")
        .def(py::init(&make_vocabulary), py::kw_only(), py::arg("texts"), py::arg("ids"))
        .def("id_of", &id_of, py::arg("text"))
        .def("token_of", &token_of, py::arg("number"))
        .def("text", &text_at, py::arg("place"))
        .def("texts", &all_texts)
        .def("ids", &all_ids)
        .def("has_lines", &has_lines, py::arg("file"))
        .def_property_readonly("num_tokens", [](const vocabulary& self) { return self.tokens().size(); })
        .def_property_readonly("num_distinct",
                               [](const vocabulary& self) { return self.num_distinct(); });
    py::class_<merge_list>(module, "Merges")
        .def(py::init(&make_merges), py::kw_only(), py::arg("tokens"), py::arg("parts"))
        .def("texts", &all_merges)
        .def_property_readonly("num_merges", &merge_list::size);
    module.def("read_vocabulary", &read_vocabulary, py::arg("file"));
    module.def("read_json_number", &read_number, py::arg("text"));
}

}  // namespace encoder_engine
