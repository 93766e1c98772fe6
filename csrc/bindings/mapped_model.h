// Models that use a compiled image where it lies.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "common/image.h"

namespace encoder_engine {

// The model keeps a hold of the buffer for as long as it lives.
template <typename Model>
std::shared_ptr<Model> map_model(const pybind11::buffer& image) {
    auto held = std::make_shared<pybind11::buffer_info>(image.request());
    const auto size = static_cast<size_t>(held->size * held->itemsize);
    std::shared_ptr<Model> model(new Model(image_reader(held->ptr, size)),
                                 [held](Model* owned) { delete owned; });
    if (!model->valid()) throw pybind11::value_error("this is not the image of such a model");
    return model;
}

}  // namespace encoder_engine
