// Messages: what was expected, what came, what to do.
#include "bindings/errors.h"

#include <cstdio>
#include <string>

namespace py = pybind11;

namespace encoder_engine {
namespace {

std::string place(const char* what, int64_t row, int64_t word) {
    const std::string text =
        row < 0 ? std::string("the ") + what : what + (" at row " + std::to_string(row));
    return word < 0 ? text : "word " + std::to_string(word) + " of the " + text;
}

std::string surrogate_message(const status& failed, py::handle text, const std::string& where) {
    char code[16];
    const Py_UCS4 unit = PyUnicode_READ_CHAR(text.ptr(), failed.position);
    std::snprintf(code, sizeof code, "U+%04X", static_cast<unsigned>(unit));
    return where + " has a lone surrogate " + code + " at character " +
           std::to_string(failed.position) +
           ", which no UTF-8 encodes; mend it with "
           "text.encode('utf-16', 'surrogatepass').decode('utf-16', 'replace')";
}

}  // namespace

void raise_error(const char* type, const std::string& message, int64_t row) {
    const py::object cls = py::module_::import("encoder_engine.errors").attr(type);
    const py::object at = row < 0 ? py::object(py::none()) : py::object(py::int_(row));
    const py::object error = cls(message, py::arg("row") = at);
    PyErr_SetObject(cls.ptr(), error.ptr());
    throw py::error_already_set();
}

void raise_status(const status& failed, py::handle text, const char* what) {
    const std::string where = place(what, failed.row, failed.word);
    const std::string count = std::to_string(failed.position);
    switch (failed.code) {
        case error_code::lone_surrogate:
            raise_error("TextError", surrogate_message(failed, text, where), failed.row);
        case error_code::text_too_long:
            raise_error("TextError",
                        where + " has " + count +
                            " characters; offsets are 32-bit, so split texts of 2^31 or more",
                        failed.row);
        case error_code::cannot_truncate:
            raise_error("InputError",
                        where + " would have to go altogether: the other text of its pair has at least " +
                            count + " tokens; raise max_length or use longest_first",
                        failed.row);
        case error_code::stride_too_large:
            raise_error("InputError",
                        where + " keeps " + count +
                            " tokens a row, so overflow rows cannot share as many as the stride; "
                            "lower stride or raise max_length",
                        failed.row);
        case error_code::too_many_tokens:
            raise_error("InputError",
                        "the batch has " + count +
                            " tokens; cu_seqlens is 32-bit, so encode it in smaller batches",
                        -1);
        case error_code::too_many_paths:
            raise_error("InputError",
                        "the " + count + " best segmentations of " + where +
                            " take more than 1 GiB; ask for fewer, or split the text",
                        failed.row);
        case error_code::none:
        case error_code::out_of_memory: break;
    }
    throw std::bad_alloc();
}

void raise_not_text(py::handle object, int64_t row, int64_t word, const char* what) {
    const std::string type = Py_TYPE(object.ptr())->tp_name;
    std::string advice;
    if (object.is_none()) {
        advice = "; drop the row or pass ''";
    } else if (PyBytes_Check(object.ptr()) || PyByteArray_Check(object.ptr())) {
        advice = "; decode it first, for example with .decode('utf-8')";
    } else if (PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
        advice = "; give pairs by pairs=, and lists of words with is_split_into_words=True";
    } else if (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr())) {
        advice = "; a missing value in a table often reads as a number";
    }
    raise_error("TextError", place(what, row, word) + " is " + type + ", expected str" + advice, row);
}

void raise_not_words(py::handle object, int64_t row, const char* what) {
    const std::string type = Py_TYPE(object.ptr())->tp_name;
    raise_error("TextError",
                place(what, row, -1) + " is " + type +
                    ", expected a list of words; without is_split_into_words texts are str",
                row);
}

text_view view_of(PyObject* text) {
    text_view view;
    view.data = PyUnicode_DATA(text);
    view.length = PyUnicode_GET_LENGTH(text);
    if (PyUnicode_IS_ASCII(text)) {
        view.width = char_width::ascii;
    } else {
        const auto kind = PyUnicode_KIND(text);
        view.width = kind == PyUnicode_1BYTE_KIND   ? char_width::one
                     : kind == PyUnicode_2BYTE_KIND ? char_width::two
                                                    : char_width::four;
    }
    return view;
}

}  // namespace encoder_engine
