// Unigram models between Python and C++.
#include "bindings/unigram.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/encoder_parts.h"
#include "bindings/errors.h"
#include "text/sentencepiece/encoder.h"
#include "text/unigram/encoder.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

using score_array = py::array_t<double, py::array::c_style | py::array::forcecast>;
using float_array = py::array_t<float, py::array::c_style | py::array::forcecast>;

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

std::vector<normalizer_step> read_steps(const std::vector<py::tuple>& steps) {
    std::vector<normalizer_step> out;
    for (const py::tuple& step : steps) out.push_back(read_step(step));
    return out;
}

std::shared_ptr<unigram_model> build_model(const vocabulary& pieces, const score_array& scores,
                                           double unknown_score, bool narrow, char32_t mark) {
    if (static_cast<size_t>(scores.size()) != pieces.tokens().size()) {
        throw py::value_error("pieces and scores are not as many as each other");
    }
    const double* values = scores.data();
    const unigram_scoring scoring{unknown_score, narrow ? score_rounding::narrow : score_rounding::wide,
                              mark};
    const py::gil_scoped_release unlocked;
    return std::make_shared<unigram_model>(pieces, values, scoring);
}

// White space, mark (or none), scheme and split.
using splitting_tuple = std::tuple<bool, std::u32string, int, bool>;

unigram_splitting read_splitting(const splitting_tuple& parts) {
    unigram_splitting out;
    const auto& [white_space, mark, scheme, split] = parts;
    out.white_space = white_space;
    out.metaspace = !mark.empty();
    if (out.metaspace) out.mark = mark[0];
    out.scheme = static_cast<prepend_scheme>(scheme);
    out.split = split;
    return out;
}

std::unique_ptr<batch_encoder> make_unigram(
    const std::shared_ptr<unigram_model>& model, int32_t unknown_id,
    const std::vector<int32_t>& byte_ids, const std::vector<py::tuple>& steps,
    const splitting_tuple& splitting, const std::vector<added_tuple>& added,
    const std::vector<piece_tuple>& single, const std::vector<piece_tuple>& pair, int trim) {
    unigram_options options;
    options.steps = read_steps(steps);
    options.splitting = read_splitting(splitting);
    options.ids = {unknown_id, byte_ids};
    auto encoder =
        std::make_unique<unigram_encoder>(model, std::move(options), read_added(added));
    return std::make_unique<batch_encoder>(std::move(encoder), read_template(single),
                                           read_template(pair), static_cast<span_trim>(trim));
}

std::unique_ptr<batch_encoder> make_sentencepiece(
    const std::shared_ptr<unigram_model>& model, const std::vector<std::string>& symbols,
    const py::bytes& charsmap, int32_t unknown_id, const std::vector<int32_t>& byte_ids,
    bool add_dummy_prefix, bool remove_extra_whitespaces, bool escape_whitespaces,
    bool whitespace_as_suffix, const float_array& scores, const std::vector<piece_tuple>& single,
    const std::vector<piece_tuple>& pair) {
    sentencepiece_options options;
    options.scores.assign(scores.data(), scores.data() + scores.size());
    options.charsmap = std::string(charsmap);
    options.symbols = symbols;
    options.add_dummy_prefix = add_dummy_prefix;
    options.remove_extra_whitespaces = remove_extra_whitespaces;
    options.escape_whitespaces = escape_whitespaces;
    options.whitespace_as_suffix = whitespace_as_suffix;
    options.unknown_id = unknown_id;
    options.byte_ids = byte_ids;
    auto encoder = std::make_unique<sentencepiece_encoder>(model, std::move(options));
    return std::make_unique<batch_encoder>(std::move(encoder), read_template(single),
                                           read_template(pair));
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

void bind_unigram(py::module_& module) {
    py::class_<python_normalizer>(module, "StepNormalizer")
        .def(py::init<const std::vector<py::tuple>&>(), py::arg("steps"))
        .def("normalize", &python_normalizer::normalize, py::arg("text"));
    py::class_<unigram_model, std::shared_ptr<unigram_model>>(module, "UnigramModel")
        .def(py::init(&build_model), py::kw_only(), py::arg("pieces"), py::arg("scores"),
             py::arg("unknown_score"), py::arg("narrow"), py::arg("mark"));
    module.def("unigram_encoder", &make_unigram, py::kw_only(), py::arg("model"),
               py::arg("unknown_id"), py::arg("byte_ids"), py::arg("steps"), py::arg("splitting"),
               py::arg("added"), py::arg("single"), py::arg("pair"), py::arg("trim"));
    module.def("sentencepiece_encoder", &make_sentencepiece, py::kw_only(), py::arg("model"),
               py::arg("symbols"), py::arg("charsmap"), py::arg("unknown_id"), py::arg("byte_ids"),
               py::arg("add_dummy_prefix"), py::arg("remove_extra_whitespaces"),
               py::arg("escape_whitespaces"), py::arg("whitespace_as_suffix"), py::arg("scores"),
               py::arg("single"),
               py::arg("pair"));
}

}  // namespace encoder_engine
