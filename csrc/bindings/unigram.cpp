// Unigram models between Python and C++.
#include "bindings/parts.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/encoder_parts.h"
#include "bindings/normalizer.h"
#include "text/sentencepiece/encoder.h"
#include "text/unigram/encoder.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

using score_array = py::array_t<double, py::array::c_style | py::array::forcecast>;
using float_array = py::array_t<float, py::array::c_style | py::array::forcecast>;

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

}  // namespace

void bind_unigram(py::module_& module) {
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
