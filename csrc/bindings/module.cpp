// The encoder_engine._native module: chooses the instruction set and registers each part.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdlib>
#include <utility>
#include <vector>

#include "bindings/normalizer.h"
#include "bindings/parts.h"
#include "common/cpu_count.h"
#include "common/cpu_features.h"
#include "common/memory_hash.h"

namespace py = pybind11;
namespace ee = encoder_engine;

PYBIND11_MODULE(_native, module) {
    std::string refused = ee::refuse_processor();
    if (refused.empty()) refused = ee::choose_instruction_set(std::getenv("ENCODER_ENGINE_ISA"));
    if (!refused.empty()) throw py::import_error(refused);
    module.def("instruction_set",
               [] { return ee::instruction_set_name(ee::chosen_instruction_set()); });
    module.def("default_threads", &ee::default_threads);
    module.def("is_amd", &ee::is_amd);
    const auto names_of = [](const std::vector<ee::instruction_set>& levels) {
        py::list names;
        for (const ee::instruction_set level : levels) names.append(ee::instruction_set_name(level));
        return py::tuple(names);
    };
    module.def("supported_instruction_sets", [=] { return names_of(ee::supported_instruction_sets()); });
    module.def("missing_instruction_sets", [=] { return names_of(ee::missing_instruction_sets()); });
    module.def("hash_memory", [](const std::vector<std::pair<uintptr_t, size_t>>& places,
                                 int num_threads) {
        std::vector<ee::memory_piece> pieces;
        pieces.reserve(places.size());
        for (const auto& [address, size] : places) {
            pieces.push_back({reinterpret_cast<const uint8_t*>(address), size});
        }
        const py::gil_scoped_release unlocked;
        return ee::hash_memory(pieces, num_threads);
    });
    ee::bind_cpu(module);
    ee::bind_plan(module);
    ee::bind_rows(module);
    ee::bind_sentences(module);
    ee::bind_vocabulary(module);
    ee::bind_normalizer(module);
    ee::bind_text(module);
    ee::bind_text_rows(module);
    ee::bind_training(module);
    ee::bind_unigram(module);
    ee::bind_bpe(module);
}
