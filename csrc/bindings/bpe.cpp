// BPE models between Python and C++.
#include "bindings/parts.h"

#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/encoder_parts.h"
#include "bindings/normalizer.h"
#include "text/bpe/encoder.h"
#include "text/bpe/model/merge_list.h"
#include "text/vocabulary.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

// Symbols (0: bytes, 1: characters), suffix, ignore_merges, byte_fallback, unknown id, fuse_unknown.
using rules_tuple = std::tuple<int, std::string, bool, bool, int32_t, bool>;
// Pattern, prefix, metaspace and scheme, in the orders of matcher.h and words.h.
using splitting_tuple = std::tuple<int, bool, bool, int>;

std::shared_ptr<bpe_model> build_model(merge_list& merges, const rules_tuple& rules) {
    bpe_rules read;
    int symbols = 0;
    std::tie(symbols, read.suffix, read.ignore_merges, read.byte_fallback, read.unknown,
             read.fuse_unknown) = rules;
    read.symbols = static_cast<bpe_symbols>(symbols);
    std::shared_ptr<bpe_model> model;
    const merge_list::merges_pointer list = merges.merges();
    {
        const py::gil_scoped_release unlocked;
        model = std::make_shared<bpe_model>(merges.tokens(), *list, std::move(read));
    }
    if (model->refusal().why == bpe_refusal::none) merges.leave_to(model);
    return model;
}

// The rule that refuses a model and the place it is about, or None.
py::object refusal_of(const bpe_model& model) {
    static const char* const kNames[] = {"",
                                         "too_large",
                                         "missing_part",
                                         "missing_result",
                                         "missing_symbol",
                                         "special_merge",
                                         "suffix_inside"};
    const bpe_refusal& refusal = model.refusal();
    if (refusal.why == bpe_refusal::none) return py::none();
    return py::make_tuple(kNames[refusal.why], refusal.place);
}

std::unique_ptr<batch_encoder> make_encoder(const std::shared_ptr<bpe_model>& model,
                                            const std::vector<py::tuple>& steps,
                                            const splitting_tuple& splitting,
                                            const std::vector<added_tuple>& added,
                                            const std::vector<piece_tuple>& single,
                                            const std::vector<piece_tuple>& pair, int trim) {
    if (model->refusal().why != bpe_refusal::none) throw py::value_error("the model is refused");
    bpe_splitting how;
    int pattern = 0, scheme = 0;
    std::tie(pattern, how.prefix, how.metaspace, scheme) = splitting;
    how.pattern = static_cast<word_pattern>(pattern);
    how.scheme = static_cast<prepend_scheme>(scheme);
    auto encoder = std::make_unique<bpe_encoder>(model, read_steps(steps), how, read_added(added));
    return std::make_unique<batch_encoder>(std::move(encoder), read_template(single),
                                           read_template(pair), static_cast<span_trim>(trim));
}

}  // namespace

void bind_bpe(py::module_& module) {
    py::class_<bpe_model, std::shared_ptr<bpe_model>>(module, "BpeModel")
        .def(py::init(&build_model), py::kw_only(), py::arg("merges"), py::arg("rules"))
        .def("count_blanks", &bpe_model::count_blanks, py::arg("tokens"))
        .def("refusal", &refusal_of);
    module.def("bpe_encoder", &make_encoder, py::kw_only(), py::arg("model"), py::arg("steps"),
               py::arg("splitting"), py::arg("added"), py::arg("single"), py::arg("pair"),
               py::arg("trim"));
}

}  // namespace encoder_engine
