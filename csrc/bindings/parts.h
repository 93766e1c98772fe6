// Registers the parts of the module: each is bound in the file of its name.
#pragma once

#include <pybind11/pybind11.h>

namespace encoder_engine {

void bind_bpe(pybind11::module_& module);
void bind_cpu(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
// Rows of token ids as Python lists and as rectangles.
void bind_rows(pybind11::module_& module);
// Sentences of texts.
void bind_sentences(pybind11::module_& module);
void bind_text(pybind11::module_& module);
// Rows of files, in place of lists of strings.
void bind_text_rows(pybind11::module_& module);
void bind_training(pybind11::module_& module);
void bind_unigram(pybind11::module_& module);
// Vocabularies and the readers of tokenizer.json.
void bind_vocabulary(pybind11::module_& module);

}  // namespace encoder_engine
