// Conversions of packed rows: lists of ints, padded matrices.
#include "bindings/parts.h"

#include <pybind11/numpy.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "bindings/errors.h"
#include "common/zeroed_memory.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

using int_array = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

// Row starts that fit the ids, or an exception.
const int32_t* checked_starts(const int_array& ids, const int_array& starts) {
    const int32_t* at = starts.data();
    const py::ssize_t count = starts.ndim() == 1 ? starts.size() : 0;
    bool fits = ids.ndim() == 1 && count > 0 && at[0] == 0 && at[count - 1] == ids.size();
    for (py::ssize_t i = 1; i < count; ++i) fits = fits && at[i] >= at[i - 1];
    if (!fits) throw py::value_error("cu_seqlens do not divide the ids into rows");
    return at;
}

// One Python int for each token id, made when it is first wanted: a list of ids then costs a
// pointer and a reference count for each. Guarded by the GIL.
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
    }

    py::list rows(const int_array& ids, const int_array& starts) {
        const int32_t* at = checked_starts(ids, starts);
        const int32_t* values = ids.data();
        const py::ssize_t num_rows = starts.size() - 1;
        py::list out(num_rows);
        for (py::ssize_t row = 0; row < num_rows; ++row) {
            const py::ssize_t length = at[row + 1] - at[row];
            py::object list = py::reinterpret_steal<py::object>(PyList_New(length));
            if (!list) throw py::error_already_set();
            fill(list.ptr(), values + at[row], length);
            PyList_SET_ITEM(out.ptr(), row, list.release().ptr());
        }
        return out;
    }

private:
    static constexpr py::ssize_t kAhead = 16;

    // Sets the items of a new list.
    void fill(PyObject* list, const int32_t* ids, py::ssize_t length) {
        PyObject** items = reinterpret_cast<PyListObject*>(list)->ob_item;
        for (py::ssize_t i = 0; i < length; ++i) {
            if (i + kAhead < length) __builtin_prefetch(known(ids[i + kAhead]));
            PyObject* number = known(ids[i]);
            if (number == nullptr && (number = make(ids[i])) == nullptr) {
                throw py::error_already_set();
            }
            Py_INCREF(number);
            items[i] = number;
        }
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
    std::unique_ptr<PyObject*[], free_memory> ints_;  // whose pages come with the first ids
    PyObject* stranger_ = nullptr;
};

// values [T] as an int64 matrix [B, width] with `fill` where a row has none; with_mask adds 1 and 0.
py::tuple pad_rows(const int_array& values, const int_array& starts, int64_t width, int64_t fill,
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
        .def("rows", &int_table::rows, py::arg("ids"), py::arg("cu_seqlens"));
    module.def("pad_rows", &pad_rows, py::arg("values"), py::arg("cu_seqlens"), py::arg("width"),
               py::arg("fill"), py::arg("left"), py::arg("with_mask"));
}

}  // namespace encoder_engine
