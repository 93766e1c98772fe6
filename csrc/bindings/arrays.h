// Makes numpy arrays of int32 at low cost: a short text's array costs more than its tokens.
#pragma once

#include <pybind11/numpy.h>

#include <cstdint>

namespace encoder_engine {

// An uninitialised int32 array [length]. py::array_t would build vectors for shape and strides.
inline pybind11::object new_int_array(int64_t length, int32_t*& data) {
    namespace py = pybind11;
    auto& api = py::detail::npy_api::get();
    PyObject* type = api.PyArray_DescrFromType_(py::detail::npy_api::NPY_INT_);
    Py_intptr_t shape[1] = {static_cast<Py_intptr_t>(length)};
    py::object array = py::reinterpret_steal<py::object>(
        api.PyArray_NewFromDescr_(api.PyArray_Type_, type, 1, shape, nullptr, nullptr, 0, nullptr));
    if (!array) throw py::error_already_set();
    data = reinterpret_cast<int32_t*>(py::detail::array_proxy(array.ptr())->data);
    return array;
}

}  // namespace encoder_engine
