// Binds the CPU kernels of training, on tensors by address: the callers in encoder_engine/ops/native
// check shapes and keep the tensors alive.
#include "bindings/parts.h"

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/cpu_arguments.h"
#include "cpu/training/adamw.h"
#include "cpu/training/attention_gradient.h"
#include "cpu/training/kept_memory.h"
#include "cpu/training/matrix_product.h"
#include "cpu/training/row_gradients.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

// Whether it is bfloat16, the address, and the elements between rows.
using matrix_argument = std::tuple<bool, uintptr_t, int64_t>;

matrix_operand operand_of(const matrix_argument& given, bool turned) {
    return {type_of(std::get<0>(given)), turned, at<void>(std::get<1>(given)), std::get<2>(given)};
}

head_rows rows_of(const vectors_argument& x) {
    return {at<void>(std::get<0>(x)), std::get<1>(x), std::get<2>(x)};
}

// Probability and seed.
using dropout_argument = std::tuple<float, uint64_t>;

void bind_row_gradients(py::module_& module) {
    module.def("normalize_for_training",
               [](bool input_half, bool half, uintptr_t input, uintptr_t residual, uintptr_t weight,
                  uintptr_t bias, uintptr_t sum, uintptr_t output, uintptr_t statistics, int64_t num_rows,
                  int64_t width, float epsilon, bool centred, const dropout_argument& dropout,
                  int num_threads) {
                   const py::gil_scoped_release unlocked;
                   normalize_for_training({type_of(input_half), type_of(half), at<void>(input),
                                           at<void>(residual), at<float>(weight), at<float>(bias),
                                           at<void>(sum), at<void>(output), at<float>(statistics), num_rows,
                                           width, epsilon, centred, std::get<0>(dropout),
                                           std::get<1>(dropout), num_threads});
               });
    module.def("norm_gradient",
               [](bool input_half, bool half, bool summed_half, uintptr_t summed, uintptr_t statistics,
                  uintptr_t weight, uintptr_t grad_output, uintptr_t grad_sum, uintptr_t grad_input,
                  uintptr_t grad_residual, uintptr_t grad_weight, uintptr_t grad_bias, int64_t num_rows,
                  int64_t width, bool centred, const dropout_argument& dropout, int num_threads) {
                   const py::gil_scoped_release unlocked;
                   norm_gradient({type_of(input_half), type_of(half), at<void>(summed), type_of(summed_half),
                                  at<float>(statistics), at<float>(weight), at<void>(grad_output),
                                  at<void>(grad_sum), at<void>(grad_input), at<void>(grad_residual),
                                  at<float>(grad_weight), at<float>(grad_bias), num_rows, width, centred,
                                  std::get<0>(dropout), std::get<1>(dropout), num_threads});
               });
    module.def("activation_gradient",
               [](bool half, const std::string& name, bool gated, uintptr_t input, uintptr_t bias,
                  uintptr_t grad_output, uintptr_t grad_input, uintptr_t grad_bias, int64_t num_rows,
                  int64_t width, int num_threads) {
                   const activation function = activation_of(name);
                   const py::gil_scoped_release unlocked;
                   activation_gradient({type_of(half), function, gated, at<void>(input), at<void>(bias),
                                        at<void>(grad_output), at<void>(grad_input), at<float>(grad_bias),
                                        num_rows, width, num_threads});
               });
    module.def("sum_columns", [](bool half, uintptr_t input, int64_t stride, uintptr_t factors,
                                 uintptr_t output, int64_t num_rows, int64_t width, int num_threads) {
        const py::gil_scoped_release unlocked;
        sum_columns({type_of(half), at<void>(input), stride, at<float>(factors), at<float>(output), num_rows,
                     width, num_threads});
    });
    module.def("drop_features", [](bool half, uintptr_t input, uintptr_t output, int64_t num_rows,
                                   int64_t width, const dropout_argument& dropout, int num_threads) {
        const py::gil_scoped_release unlocked;
        drop_features({type_of(half), at<void>(input), at<void>(output), num_rows, width,
                       std::get<0>(dropout), std::get<1>(dropout), num_threads});
    });
    module.def("add_table_rows", [](uintptr_t rows, uintptr_t ids, uintptr_t factors, uintptr_t table,
                                    int64_t num_rows, int64_t width, int num_threads) {
        const py::gil_scoped_release unlocked;
        add_table_rows({at<float>(rows), at<int32_t>(ids), at<float>(factors), at<float>(table), num_rows,
                        width, num_threads});
    });
    module.def("cross_entropy_rows",
               [](bool half, uintptr_t logits, uintptr_t labels, uintptr_t lse, uintptr_t label_logits,
                  uintptr_t logit_sums, uintptr_t predictions, int64_t num_rows, int64_t vocabulary,
                  bool keeps_gradient, float label_smoothing, float z_loss, int num_threads) {
                   const py::gil_scoped_release unlocked;
                   cross_entropy_rows({type_of(half), at<void>(logits), at<int64_t>(labels), at<float>(lse),
                                       at<float>(label_logits), at<float>(logit_sums),
                                       at<int64_t>(predictions), num_rows, vocabulary, keeps_gradient,
                                       label_smoothing, z_loss, num_threads});
               });
}

void bind_attention(py::module_& module) {
    // The terms: scale, window, causality, slopes, bias and its reach, queries and where each sequence's
    // begin. The gradients: of the output, then written: of query, key and value, and of the bias.
    using terms_argument = std::tuple<float, int64_t, bool, uintptr_t, uintptr_t, int64_t, uintptr_t, uintptr_t>;
    using gradients_argument =
        std::tuple<uintptr_t, vectors_argument, vectors_argument, vectors_argument, uintptr_t>;
    module.def("attend_for_training",
               [](bool half, const vectors_argument& query, const vectors_argument& key,
                  const vectors_argument& value, uintptr_t output, uintptr_t statistics,
                  uintptr_t cu_seqlens, int64_t num_sequences, int64_t num_heads, int64_t num_key_heads,
                  int64_t head_dim, const terms_argument& terms, const dropout_argument& dropout,
                  const gradients_argument& gradients, int num_threads) {
                   const attention_training_call call{type_of(half),
                                                      rows_of(query),
                                                      rows_of(key),
                                                      rows_of(value),
                                                      at<void>(output),
                                                      at<float>(statistics),
                                                      at<int32_t>(cu_seqlens),
                                                      num_sequences,
                                                      num_heads,
                                                      num_key_heads,
                                                      head_dim,
                                                      std::get<0>(terms),
                                                      std::get<1>(terms),
                                                      std::get<2>(terms),
                                                      at<float>(std::get<3>(terms)),
                                                      at<float>(std::get<4>(terms)),
                                                      std::get<5>(terms),
                                                      at<int32_t>(std::get<6>(terms)),
                                                      at<int32_t>(std::get<7>(terms)),
                                                      std::get<0>(dropout),
                                                      std::get<1>(dropout),
                                                      num_threads,
                                                      at<void>(std::get<0>(gradients)),
                                                      rows_of(std::get<1>(gradients)),
                                                      rows_of(std::get<2>(gradients)),
                                                      rows_of(std::get<3>(gradients)),
                                                      at<float>(std::get<4>(gradients))};
                   const py::gil_scoped_release unlocked;
                   attend_for_training(call);
               });
}

void bind_optimizer(py::module_& module) {
    module.def("sum_squares", [](const std::vector<std::pair<uintptr_t, int64_t>>& given, int num_threads) {
        std::vector<float_span> tensors;
        for (const auto& [address, size] : given) tensors.push_back({at<float>(address), size});
        const py::gil_scoped_release unlocked;
        return sum_squares(tensors, num_threads);
    });
    // Addresses of parameter, gradient and moments, elements; learning rate, decay and correction.
    using tensor_argument =
        std::tuple<uintptr_t, uintptr_t, uintptr_t, uintptr_t, int64_t, float, float, float>;
    module.def("take_adamw_step", [](const std::vector<tensor_argument>& given, double beta1, double beta2,
                                     float epsilon, float gradient_factor, int num_threads) {
        std::vector<adamw_tensor> tensors;
        for (const auto& [parameter, gradient, first, second, size, rate, decay, correction] : given) {
            tensors.push_back({at<float>(parameter), at<float>(gradient), at<float>(first),
                               at<float>(second), size, rate, decay, correction});
        }
        const py::gil_scoped_release unlocked;
        const adamw_call call{static_cast<float>(1.0 - beta1), static_cast<float>(beta2),
                              static_cast<float>(1.0 - beta2), epsilon, gradient_factor, num_threads};
        take_adamw_step(call, tensors);
    });
}

}  // namespace

void bind_training(py::module_& module) {
    py::class_<kept_memory>(module, "KeptMemory", py::buffer_protocol())
        .def(py::init<size_t>())
        .def_buffer([](kept_memory& kept) {
            return py::buffer_info(static_cast<uint8_t*>(kept.data()), static_cast<py::ssize_t>(kept.bytes()));
        });
    module.def("release_kept_memory", &release_kept_memory);
    module.def("multiply_matrices",
               [](bool half, const matrix_argument& left, bool left_turned, const matrix_argument& right,
                  bool right_turned, uintptr_t bias, const matrix_argument& output, bool adds,
                  int64_t num_rows, int64_t num_columns, int64_t depth, int num_threads) {
                   const matrix_product call{type_of(half),
                                             operand_of(left, left_turned),
                                             operand_of(right, right_turned),
                                             at<float>(bias),
                                             type_of(std::get<0>(output)),
                                             at<void>(std::get<1>(output)),
                                             std::get<2>(output),
                                             adds,
                                             num_rows,
                                             num_columns,
                                             depth,
                                             num_threads};
                   const py::gil_scoped_release unlocked;
                   multiply_matrices(call);
               });
    bind_row_gradients(module);
    bind_attention(module);
    bind_optimizer(module);
}

}  // namespace encoder_engine
