// Binds the tokenizer's classes: texts to packed numpy arrays, with the GIL released in between.
#include "bindings/parts.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/encoder_parts.h"
#include "bindings/errors.h"
#include "bindings/text_rows.h"
#include "text/batch/encode_batch.h"
#include "text/wordpiece/normalize_text.h"
#include "text/wordpiece/encoder.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

using int_array = py::array_t<int32_t>;
// As sampling_options has them.
using sampling_tuple = std::tuple<double, int64_t, uint64_t>;
// EncodeRequest of encoder_engine/text/encoders/protocols.py.
using encode_request = std::tuple<bool, int, int64_t, int64_t, bool, bool, bool, bool, int,
                                  std::optional<sampling_tuple>>;

// Owns references to the texts, or the words of texts, while threads read them without the GIL.
class text_list {
public:
    text_list(const py::object& texts, bool words, const char* what) : what_(what), words_(words) {
        if (!words && py::isinstance<bound_rows>(texts)) {
            owner_ = texts;
            views_ = texts.cast<const bound_rows&>().rows.views;
            return;
        }
        items_ = as_tuple(texts.ptr());
        const Py_ssize_t size = PyTuple_GET_SIZE(items_.ptr());
        views_.reserve(static_cast<size_t>(size));
        if (!words) {
            for (Py_ssize_t i = 0; i < size; ++i) add(PyTuple_GET_ITEM(items_.ptr(), i), i, -1);
            return;
        }
        starts_.push_back(0);
        for (Py_ssize_t i = 0; i < size; ++i) {
            PyObject* item = PyTuple_GET_ITEM(items_.ptr(), i);
            if (!PyList_Check(item) && !PyTuple_Check(item)) raise_not_words(item, i, what);
            rows_.push_back(as_tuple(item));
            PyObject* row = rows_.back().ptr();
            for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(row); ++j) {
                add(PyTuple_GET_ITEM(row, j), i, j);
            }
            starts_.push_back(static_cast<int64_t>(views_.size()));
        }
        views_.reserve(1);  // a batch without any word has views all the same
    }
    text_batch batch() const { return {views_.data(), words_ ? starts_.data() : nullptr}; }
    int64_t size() const {
        return owner_ ? static_cast<int64_t>(views_.size()) : static_cast<int64_t>(PyTuple_GET_SIZE(items_.ptr()));
    }
    [[noreturn]] void raise(const status& failed) const {
        if (owner_) {
            const py::object row = failed.row < 0 ? py::none() : row_text(owner_.cast<const bound_rows&>(), failed.row);
            raise_status(failed, failed.row < 0 ? py::handle() : py::handle(row), what_);
        }
        PyObject* text = failed.row >= 0 ? PyTuple_GET_ITEM(items_.ptr(), failed.row) : nullptr;
        if (text != nullptr && failed.word >= 0) {
            text = PyTuple_GET_ITEM(rows_[static_cast<size_t>(failed.row)].ptr(), failed.word);
        }
        raise_status(failed, text, what_);
    }

private:
    static py::tuple as_tuple(PyObject* sequence) {
        py::tuple out = py::reinterpret_steal<py::tuple>(PySequence_Tuple(sequence));
        if (!out) throw py::error_already_set();
        return out;
    }
    void add(PyObject* item, int64_t row, int64_t word) {
        if (!PyUnicode_Check(item)) raise_not_text(item, row, word, what_);
        views_.push_back(view_of(item));
    }

    py::tuple items_;
    py::object owner_;             // of rows of files
    std::vector<py::tuple> rows_;  // of words
    std::vector<int64_t> starts_;  // of words: per row, the index of its first view
    const char* what_;
    bool words_;
    std::vector<text_view> views_;
};

// Copies each chunk's share of one buffer to its place in the whole.
template <typename Buffer>
void gather(const batch_output& out, int64_t per, const Buffer& buffer_of, bool by_row,
            int32_t* to) {
    for (const batch_chunk& chunk : out.chunks) {
        const int64_t first = by_row ? chunk.first_row : chunk.first_token;
        const int64_t count = by_row ? chunk.num_rows : chunk.num_tokens;
        if (count == 0) continue;
        const pod_vector<int32_t>& from = buffer_of(*out.workers[static_cast<size_t>(chunk.worker)]);
        std::memcpy(to, from.data() + first * per, static_cast<size_t>(count * per) * sizeof *to);
        to += count * per;
    }
}

int_array row_starts(const batch_output& out) {
    int_array starts(out.num_rows + 1);
    int32_t* at = starts.mutable_data();
    *at = 0;
    gather(out, 1, [](const batch_worker& w) -> auto& { return w.row_lengths; }, true, at + 1);
    for (int64_t i = 1; i <= out.num_rows; ++i) at[i] += at[i - 1];
    return starts;
}

struct batch_lease {
    const batch_encoder& batch;
    batch_output out;
    explicit batch_lease(const batch_encoder& owner) : batch(owner) {}
    batch_lease(const batch_lease&) = delete;
    batch_lease& operator=(const batch_lease&) = delete;
    ~batch_lease() { batch.recycle(out); }
};

class worker_lease {
public:
    explicit worker_lease(const batch_encoder& owner)
        : batch_(owner), worker_(owner.take_worker()) {}
    worker_lease(const worker_lease&) = delete;
    worker_lease& operator=(const worker_lease&) = delete;
    ~worker_lease() { batch_.recycle(std::move(worker_)); }
    batch_worker& operator*() { return *worker_; }
    batch_worker* operator->() { return worker_.get(); }

private:
    const batch_encoder& batch_;
    std::unique_ptr<batch_worker> worker_;
};

// From here on the only worker's ids become the array itself: so large a worker is not kept.
constexpr int64_t kMovedTokens = int64_t{1} << 20;

py::object ids_array(const batch_encoder& self, batch_output& out) {
    if (out.workers.size() == 1 && out.num_tokens >= kMovedTokens) {
        auto* ids = new pod_vector<int32_t>(std::move(out.workers[0]->out.ids));
        const py::capsule owner(ids, [](void* p) { delete static_cast<pod_vector<int32_t>*>(p); });
        return int_array(out.num_tokens, ids->data(), owner);
    }
    int32_t* to = nullptr;
    py::object ids = new_int_array(out.num_tokens, to);
    const py::gil_scoped_release unlocked;
    self.copy_ids(out, to);
    return ids;
}

py::tuple result_arrays(const batch_encoder& self, batch_output& out, bool paired,
                        const encode_options& options) {
    int_array starts = row_starts(out);
    py::object first_lengths = py::none(), spans = py::none(), words = py::none();
    py::object samples = py::none();
    if (paired) {
        int_array array(out.num_rows);
        gather(out, 1, [](const batch_worker& w) -> auto& { return w.first_lengths; }, true,
               array.mutable_data());
        first_lengths = std::move(array);
    }
    if (options.overflow) {
        int_array array(out.num_rows);
        gather(out, 1, [](const batch_worker& w) -> auto& { return w.samples; }, true,
               array.mutable_data());
        samples = std::move(array);
    }
    if (options.with_spans) {
        int_array span_array({static_cast<py::ssize_t>(out.num_tokens), py::ssize_t{2}});
        int_array word_array(out.num_tokens);
        gather(out, 2, [](const batch_worker& w) -> auto& { return w.out.spans; }, false,
               span_array.mutable_data());
        gather(out, 1, [](const batch_worker& w) -> auto& { return w.out.words; }, false,
               word_array.mutable_data());
        spans = std::move(span_array);
        words = std::move(word_array);
    }
    const py::object ids = ids_array(self, out);
    py::array_t<bool> truncated(out.truncated.size());
    std::copy_n(out.truncated.data(), out.truncated.size(), truncated.mutable_data());
    return py::make_tuple(ids, starts, first_lengths, spans, words, samples, truncated);
}

py::tuple encode_batch(const batch_encoder& self, const py::object& texts, const py::object& pairs,
                       const encode_request& request) {
    encode_options options;
    int strategy = 0;
    bool words = false;
    std::optional<sampling_tuple> sampling;
    std::tie(options.add_special_tokens, strategy, options.max_length, options.stride,
             options.overflow, options.left, options.with_spans, words, options.num_threads,
             sampling) = request;
    options.strategy = static_cast<truncation_strategy>(strategy);
    sampling_options chance;
    if (sampling) {
        std::tie(chance.alpha, chance.nbest, chance.seed) = *sampling;
        options.sampling = &chance;
    }
    const bool paired = !pairs.is_none();
    const text_list first(texts, words, paired ? "first text" : "text");
    const std::unique_ptr<text_list> second =
        paired ? std::make_unique<text_list>(pairs, words, "second text") : nullptr;
    // The iterator of a subclass of list may pass over items that its length counts.
    if (paired && second->size() != first.size()) {
        raise_error("InputError",
                    "there are " + std::to_string(first.size()) + " texts but " +
                        std::to_string(second->size()) + " pairs",
                    -1);
    }
    const batch_input input{first.batch(), paired ? second->batch() : text_batch{}, first.size()};
    batch_lease lease(self);
    status result;
    {
        const py::gil_scoped_release unlocked;
        result = self.encode(input, options, lease.out);
    }
    if (!result.ok()) (result.second && paired ? *second : first).raise(result);
    return result_arrays(self, lease.out, paired, options);
}

// Shorter texts are done before another thread could use the GIL.
constexpr int64_t kHoldGilCharacters = 2048;

py::object encode_one(const batch_encoder& self, PyObject* text, bool add_special_tokens) {
    if (!PyUnicode_Check(text)) raise_not_text(text, -1, -1, "text");
    const text_view view = view_of(text);
    worker_lease worker(self);
    status result;
    if (view.length < kHoldGilCharacters) {
        result = self.encode_one(view, add_special_tokens, *worker);
    } else {
        const py::gil_scoped_release unlocked;
        result = self.encode_one(view, add_special_tokens, *worker);
    }
    if (!result.ok()) {
        result.row = -1;
        raise_status(result, text, "text");
    }
    const pod_vector<int32_t>& ids = worker->out.ids;
    int32_t* to = nullptr;
    py::object array = new_int_array(ids.size(), to);
    if (!ids.empty()) std::memcpy(to, ids.data(), static_cast<size_t>(ids.size()) * sizeof *to);
    return array;
}

// Pairs of ids and score, the best first.
py::list nbest_rows(const batch_encoder& self, const py::object& text, int64_t count,
                    bool add_special_tokens) {
    if (!PyUnicode_Check(text.ptr())) raise_not_text(text, -1, -1, "text");
    worker_lease worker(self);
    std::vector<int64_t> ends;
    std::vector<double> scores;
    status result;
    {
        const py::gil_scoped_release unlocked;
        result = self.encode_nbest(view_of(text.ptr()), count, add_special_tokens, *worker, ends,
                                   scores);
    }
    if (!result.ok()) raise_status(result, text, "text");
    py::list rows;
    int64_t start = 0;
    for (size_t i = 0; i < ends.size(); ++i) {
        rows.append(py::make_tuple(int_array(ends[i] - start, worker->out.ids.data() + start),
                                   scores[i]));
        start = ends[i];
    }
    return rows;
}

// encode(text, add_special_tokens) as CPython itself calls it: pybind11's way to a function costs
// as much as a sentence does.
PyObject* encode_method(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "encode() takes 2 arguments but %zd were given", count);
        return nullptr;
    }
    const int add_special_tokens = PyObject_IsTrue(arguments[1]);
    if (add_special_tokens < 0) return nullptr;
    auto* instance = reinterpret_cast<py::detail::instance*>(self);
    try {
        const auto* encoder = instance->get_value_and_holder().value_ptr<batch_encoder>();
        if (encoder == nullptr) throw py::type_error("the BatchEncoder was never initialised");
        return encode_one(*encoder, arguments[0], add_special_tokens != 0).release().ptr();
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (const py::builtin_exception& error) {
        error.set_error();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    }
    return nullptr;
}

PyMethodDef encode_definition = {
    "encode", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(encode_method)),
    METH_FASTCALL, "encode($self, text, add_special_tokens, /)\n--\n\n"};

std::shared_ptr<wordpiece_model> build_wordpiece_model(const vocabulary& tokens, int32_t unknown_id,
                                                       const std::string& prefix,
                                                       int64_t max_word_characters) {
    const py::gil_scoped_release unlocked;
    return std::make_shared<wordpiece_model>(
        tokens, wordpiece_rules{unknown_id, prefix, max_word_characters});
}

std::unique_ptr<batch_encoder> make_wordpiece(const std::shared_ptr<wordpiece_model>& model,
                                              const normalizer_options& normalizer,
                                              const std::vector<added_tuple>& added,
                                              const std::vector<piece_tuple>& single,
                                              const std::vector<piece_tuple>& pair, int trim) {
    auto encoder = std::make_unique<wordpiece_encoder>(model, normalizer, read_added(added));
    return std::make_unique<batch_encoder>(std::move(encoder), read_template(single),
                                           read_template(pair), static_cast<span_trim>(trim));
}

// The normalizer alone: for added tokens, and for the tests that compare every code point.
class normalizer {
public:
    explicit normalizer(const normalizer_options& options) : table_(make_text_table(options)) {}

    py::object normalize(const py::object& text) const {
        if (!PyUnicode_Check(text.ptr())) raise_not_text(text, -1, -1, "text");
        std::vector<uint32_t> codes;
        const status result = normalize_text(view_of(text.ptr()), *table_, codes);
        if (!result.ok()) raise_status(result, text, "text");
        return py::reinterpret_steal<py::object>(PyUnicode_FromKindAndData(
            PyUnicode_4BYTE_KIND, codes.data(), static_cast<Py_ssize_t>(codes.size())));
    }

private:
    std::unique_ptr<char_table> table_;
};

}  // namespace

void bind_text(py::module_& module) {
    py::class_<normalizer_options>(module, "NormalizerOptions")
        .def(py::init([](bool clean_text, bool handle_cjk, bool strip_accents, bool lowercase) {
                 return normalizer_options{clean_text, handle_cjk, strip_accents, lowercase};
             }),
             py::kw_only(), py::arg("clean_text"), py::arg("handle_cjk"), py::arg("strip_accents"),
             py::arg("lowercase"));
    py::class_<normalizer>(module, "Normalizer")
        .def(py::init<const normalizer_options&>(), py::arg("options"))
        .def("normalize", &normalizer::normalize, py::arg("text"));
    py::class_<wordpiece_model, std::shared_ptr<wordpiece_model>>(module, "WordPieceModel")
        .def(py::init(&build_wordpiece_model), py::kw_only(), py::arg("tokens"),
             py::arg("unknown_id"), py::arg("prefix"), py::arg("max_word_characters"));
    py::class_<batch_encoder> encoder(module, "BatchEncoder");
    encoder
        .def_static("wordpiece", &make_wordpiece, py::kw_only(), py::arg("model"),
                    py::arg("normalizer"), py::arg("added"), py::arg("single"), py::arg("pair"),
                    py::arg("trim"))
        .def("encode_batch", &encode_batch, py::arg("texts"), py::arg("pairs"),
             py::arg("request"))
        .def("encode_nbest", &nbest_rows, py::arg("text"), py::arg("count"),
             py::arg("add_special_tokens"));
    auto* type = reinterpret_cast<PyTypeObject*>(encoder.ptr());
    const auto method =
        py::reinterpret_steal<py::object>(PyDescr_NewMethod(type, &encode_definition));
    if (!method) throw py::error_already_set();
    py::setattr(encoder, "encode", method);
}

}  // namespace encoder_engine
