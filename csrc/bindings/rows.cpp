// Conversions of packed rows: lists of ints, padded matrices.
#include "bindings/parts.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "bindings/errors.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

using given_ints = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

// Row starts that fit the values, [T] or [T, columns], or an exception.
const int32_t* checked_starts(const given_ints& values, const given_ints& starts,
                              py::ssize_t columns = 1) {
    const int32_t* at = starts.data();
    const py::ssize_t count = starts.ndim() == 1 ? starts.size() : 0;
    const bool is_shaped = columns == 1 ? values.ndim() == 1
                                        : values.ndim() == 2 && values.shape(1) == columns;
    bool fits = is_shaped && count > 0 && at[0] == 0 && at[count - 1] == values.shape(0);
    for (py::ssize_t i = 1; i < count; ++i) fits = fits && at[i] >= at[i - 1];
    if (!fits) throw py::value_error("cu_seqlens do not divide the values into rows");
    return at;
}

// One Python int for each token id, made when it is first wanted: a list of ids then costs a
// pointer and a reference count for each. Texts share most of their spans, too: the last tuple of
// each kind is kept. Without it the 3,600 new tuples of 256 sentences have the garbage collector
// visit all young objects five times, two thirds of a call. Guarded by the GIL.
class int_table {
public:
    explicit int_table(int64_t size)
        : size_(static_cast<size_t>(std::max<int64_t>(size, 0))),
          ints_(static_cast<PyObject**>(std::calloc(size_ + 1, sizeof(PyObject*)))) {
        if (ints_ == nullptr) throw std::bad_alloc();
    }
    int_table(const int_table&) = delete;
    int_table& operator=(const int_table&) = delete;
    ~int_table() {
        for (size_t i = 0; i < size_; ++i) Py_XDECREF(ints_[i]);
        Py_XDECREF(stranger_);
        for (size_t i = 0; spans_ && i < kSpans; ++i) Py_XDECREF(spans_[i].tuple);
    }

    // Lists of at least `width`, with `pad` where a row has no value.
    py::list rows(const given_ints& ids, const given_ints& starts, py::ssize_t width, int32_t pad,
                  bool left) {
        const int32_t* at = checked_starts(ids, starts);
        const int32_t* values = ids.data();
        const py::ssize_t num_rows = starts.size() - 1;
        const py::object padding = py::reinterpret_borrow<py::object>(number(pad));
        py::list out(num_rows);
        for (py::ssize_t row = 0; row < num_rows; ++row) {
            const py::ssize_t length = at[row + 1] - at[row];
            const py::ssize_t gap = std::max<py::ssize_t>(width - length, 0);
            py::object list = py::reinterpret_steal<py::object>(PyList_New(length + gap));
            if (!list) throw py::error_already_set();
            PyObject** items = reinterpret_cast<PyListObject*>(list.ptr())->ob_item;
            fill(items + (left ? gap : 0), values + at[row], length);
            PyObject** gaps = items + (left ? 0 : length);
            for (py::ssize_t i = 0; i < gap; ++i) gaps[i] = py::object(padding).release().ptr();
            PyList_SET_ITEM(out.ptr(), row, list.release().ptr());
        }
        return out;
    }

    // Lists of pairs of a matrix [T, 2], as tuples.
    py::list pairs(const given_ints& matrix, const given_ints& starts) {
        const int32_t* at = checked_starts(matrix, starts, 2);
        const int32_t* values = matrix.data();
        const py::ssize_t num_rows = starts.size() - 1;
        if (!spans_) spans_ = std::make_unique<span[]>(kSpans);
        py::list out(num_rows);
        for (py::ssize_t row = 0; row < num_rows; ++row) {
            py::list list(at[row + 1] - at[row]);
            for (int32_t i = at[row]; i < at[row + 1]; ++i) {
                py::object pair = py::reinterpret_borrow<py::object>(tuple_of(values + 2 * i));
                PyList_SET_ITEM(list.ptr(), i - at[row], pair.release().ptr());
            }
            PyList_SET_ITEM(out.ptr(), row, list.release().ptr());
        }
        return out;
    }

private:
    static constexpr py::ssize_t kAhead = 16;
    // Every span of at most 15 characters in a text of 512 has a place of its own.
    static constexpr size_t kSpans = 8192;
    struct span {
        int32_t start, stop;
        PyObject* tuple;
    };

    // Sets the items of a new list or tuple.
    void fill(PyObject** items, const int32_t* ids, py::ssize_t length) {
        for (py::ssize_t i = 0; i < length; ++i) {
            if (i + kAhead < length) __builtin_prefetch(known(ids[i + kAhead]));
            items[i] = py::reinterpret_borrow<py::object>(number(ids[i])).release().ptr();
        }
    }
    // A borrowed reference, or an exception.
    PyObject* tuple_of(const int32_t* ends) {
        const uint32_t start = static_cast<uint32_t>(ends[0]);
        span& kept = spans_[(start * 16 + (static_cast<uint32_t>(ends[1]) - start) % 16) % kSpans];
        if (kept.tuple == nullptr || kept.start != ends[0] || kept.stop != ends[1]) {
            py::object made = py::reinterpret_steal<py::object>(PyTuple_New(2));
            if (!made) throw py::error_already_set();
            fill(&PyTuple_GET_ITEM(made.ptr(), 0), ends, 2);
            // As the collector itself does with tuples of ints: it need not visit them.
            PyObject_GC_UnTrack(made.ptr());
            Py_XDECREF(kept.tuple);
            kept = {ends[0], ends[1], made.release().ptr()};
        }
        return kept.tuple;
    }
    // A borrowed reference, or an exception.
    PyObject* number(int32_t id) {
        PyObject* found = known(id);
        if (found == nullptr && (found = make(id)) == nullptr) throw py::error_already_set();
        return found;
    }
    PyObject* known(int32_t id) const {
        return static_cast<uint32_t>(id) < size_ ? ints_[static_cast<uint32_t>(id)] : nullptr;
    }
    // A borrowed reference; an id that is no token's has a place in the last one.
    PyObject* make(int32_t id) {
        PyObject* number = PyLong_FromLong(id);
        if (static_cast<uint32_t>(id) < size_) {
            ints_[static_cast<uint32_t>(id)] = number;
        } else {
            Py_XDECREF(stranger_);
            stranger_ = number;
        }
        return number;
    }

    size_t size_;
    struct free_ints {
        void operator()(PyObject** ints) const { std::free(ints); }
    };
    std::unique_ptr<PyObject*[], free_ints> ints_;  // whose pages come with the first ids
    PyObject* stranger_ = nullptr;
    std::unique_ptr<span[]> spans_;  // made with the first offsets
};

// values [T] as an int64 matrix [B, width] with `fill` where a row has none; with_mask adds 1 and 0.
py::tuple pad_rows(const given_ints& values, const given_ints& starts, int64_t width, int64_t fill,
                   bool left, bool with_mask) {
    const int32_t* at = checked_starts(values, starts);
    const py::ssize_t num_rows = starts.size() - 1;
    for (py::ssize_t row = 0; row < num_rows; ++row) {
        if (at[row + 1] - at[row] > width) throw py::value_error("a row is longer than the width");
    }
    py::array_t<int64_t> matrix({num_rows, static_cast<py::ssize_t>(width)});
    py::array_t<int64_t> mask({with_mask ? num_rows : 0, static_cast<py::ssize_t>(width)});
    int64_t* out = matrix.mutable_data();
    int64_t* flags = mask.mutable_data();
    const int32_t* from = values.data();
    {
        const py::gil_scoped_release unlocked;
        for (py::ssize_t row = 0; row < num_rows; ++row, out += width) {
            const int64_t length = at[row + 1] - at[row];
            const int64_t first = left ? width - length : 0;
            std::copy_n(from + at[row], length, out + first);
            std::fill_n(out + (left ? 0 : length), width - length, fill);
            if (!with_mask) continue;
            std::fill_n(flags + first, length, 1);
            std::fill_n(flags + (left ? 0 : length), width - length, 0);
            flags += width;
        }
    }
    return py::make_tuple(matrix, mask);
}

}  // namespace

void bind_rows(py::module_& module) {
    py::class_<int_table>(module, "IntTable")
        .def(py::init<int64_t>(), py::arg("size"))
        .def("rows", &int_table::rows, py::arg("ids"), py::arg("cu_seqlens"), py::arg("width") = 0,
             py::arg("pad") = 0, py::arg("left") = false)
        .def("pairs", &int_table::pairs, py::arg("matrix"), py::arg("cu_seqlens"));
    module.def("pad_rows", &pad_rows, py::arg("values"), py::arg("cu_seqlens"), py::arg("width"),
               py::arg("fill"), py::arg("left"), py::arg("with_mask"));
}

}  // namespace encoder_engine
