// Models that read a compiled image in place.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "common/image.h"

namespace encoder_engine {

// The model keeps the buffer alive.
template <typename Model>
std::shared_ptr<Model> map_model(const pybind11::buffer& image) {
    auto buffer = std::make_shared<pybind11::buffer_info>(image.request());
    const auto size = static_cast<size_t>(buffer->size * buffer->itemsize);
    std::shared_ptr<Model> model(new Model(image_reader(buffer->ptr, size)),
                                 [buffer](Model* owned) { delete owned; });
    if (!model->valid()) throw pybind11::value_error("this is not the image of such a model");
    return model;
}

}  // namespace encoder_engine
