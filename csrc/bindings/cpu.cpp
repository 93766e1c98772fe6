// Binds the CPU kernels, on tensors by address: the callers in encoder_engine/ops/native check shapes
// and keep the tensors alive.
#include "bindings/parts.h"

#include <cstdint>
#include <string>

#include "bindings/cpu_arguments.h"
#include "cpu/attention.h"
#include "cpu/conversion.h"
#include "cpu/packed_linear.h"
#include "cpu/quantized_linear.h"
#include "cpu/rows.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

// Queries, relative bias, distance vectors, global rows and statistics, in the order of _native.pyi.
void add_terms(attention_call& call, const py::args& others) {
    constexpr size_t kTerms = 10, kMost = 14;
    if (others.size() != kTerms && others.size() != kMost) {
        throw py::type_error("attention takes 21, 31 or 35 arguments, got " +
                             std::to_string(21 + others.size()));
    }
    const auto address = [&](size_t i) { return others[i].cast<uintptr_t>(); };
    call.query_rows = at<int32_t>(address(0));
    call.cu_queries = at<int32_t>(address(1));
    call.relative_bias = at<float>(address(2));
    call.bias_reach = others[3].cast<int64_t>();
    call.distances = distances_of(others[4].cast<vectors_argument>(), others[5].cast<vectors_argument>(),
                                  address(6), others[7].cast<int64_t>());
    call.global_rows = at<int32_t>(address(8));
    call.cu_global = at<int32_t>(address(9));
    if (others.size() == kTerms) return;
    call.statistics = {at<uint8_t>(address(10)), others[11].cast<int64_t>(), at<float>(address(12)),
                       at<int64_t>(address(13))};
}

}  // namespace

void bind_cpu(py::module_& module) {
    module.def("attention", [](bool half, uintptr_t query, int64_t query_token, int64_t query_head,
                               uintptr_t key, int64_t key_token, int64_t key_head, uintptr_t value,
                               int64_t value_token, int64_t value_head, uintptr_t output,
                               uintptr_t cu_seqlens, int64_t num_sequences, int64_t num_heads,
                               int64_t num_key_heads, int64_t head_dim, float scale, int64_t window,
                               bool causal, uintptr_t alibi_slopes, int num_threads,
                               const py::args& others) {
        attention_call call{type_of(half),
                            {at<void>(query), query_token, query_head},
                            {at<void>(key), key_token, key_head},
                            {at<void>(value), value_token, value_head},
                            at<void>(output),
                            at<int32_t>(cu_seqlens),
                            num_sequences,
                            num_heads,
                            num_key_heads,
                            head_dim,
                            scale,
                            window,
                            causal,
                            at<float>(alibi_slopes),
                            num_threads};
        // Most calls have none, and would wait for the defaults of ten.
        if (!others.empty()) add_terms(call, others);
        const py::gil_scoped_release unlocked;
        attention(call);
    });
    module.def("normalize_rows", [](bool half, uintptr_t input, uintptr_t residual, uintptr_t weight,
                                    uintptr_t bias, uintptr_t sum, uintptr_t output,
                                    uintptr_t quantized, uintptr_t scales, int64_t num_rows, int64_t width, float epsilon, bool centred,
                                    int num_threads) {
        const py::gil_scoped_release unlocked;
        normalize_rows({type_of(half), at<void>(input), at<void>(residual), at<void>(weight),
                        at<void>(bias), at<void>(sum), at<void>(output), at<uint8_t>(quantized),
                        at<float>(scales), num_rows, width, epsilon, centred, num_threads});
    });
    module.def("embed_rows", [](bool half, uintptr_t tokens, uintptr_t token_ids, int64_t num_tokens,
                                uintptr_t positions, uintptr_t position_ids, int64_t num_positions,
                                uintptr_t segments, uintptr_t segment_ids, int64_t num_segments,
                                uintptr_t weight, uintptr_t bias, uintptr_t output,
                                int64_t num_rows, int64_t width, float epsilon, int num_threads,
                                uintptr_t token_scales) {
        const py::gil_scoped_release unlocked;
        embed_rows({type_of(half), {at<void>(tokens), at<int32_t>(token_ids), num_tokens},
                    {at<void>(positions), at<int32_t>(position_ids), num_positions},
                    {at<void>(segments), at<int32_t>(segment_ids), num_segments}, at<void>(weight),
                    at<void>(bias), at<void>(output), num_rows, width, epsilon, num_threads,
                    at<float>(token_scales)});
    });
    module.def("pool_rows", [](bool half, const std::string& name, bool normalized, uintptr_t input,
                               uintptr_t cu_seqlens, uintptr_t output, int64_t num_rows,
                               int64_t width, int num_threads) {
        const pooling_mode mode = pooling_mode_of(name);
        const py::gil_scoped_release unlocked;
        pool_rows({type_of(half), mode, normalized, at<void>(input), at<int32_t>(cu_seqlens),
                   at<void>(output), num_rows, width, num_threads});
    });
    module.def("mean_static_rows", [](const std::string& name, uintptr_t table, uintptr_t ids,
                                      uintptr_t cu_seqlens, uintptr_t mapping, uintptr_t weights,
                                      int32_t left_out, bool normalized, uintptr_t output,
                                      int64_t num_rows, int64_t row_width, int64_t width,
                                      int64_t num_ids, int num_threads) {
        const table_type type = table_type_of(name);
        const py::gil_scoped_release unlocked;
        mean_static_rows({type, at<void>(table), at<int32_t>(ids), at<int32_t>(cu_seqlens),
                          at<int32_t>(mapping), at<float>(weights), left_out, normalized,
                          at<float>(output), num_rows, row_width, width, num_ids, num_threads});
    });
    module.def("activate_rows", [](bool half, const std::string& name, bool gated, uintptr_t input,
                                   uintptr_t bias, uintptr_t output, int64_t num_rows,
                                   int64_t width, int num_threads) {
        const activation function = activation_of(name);
        const py::gil_scoped_release unlocked;
        activate_rows({type_of(half), function, gated, at<void>(input), at<void>(bias),
                       at<void>(output), num_rows, width, num_threads});
    });
    module.def("rotate_rows", [](bool half, uintptr_t input, int64_t input_stride, uintptr_t table,
                                 uintptr_t positions, uintptr_t output, int64_t num_rows,
                                 int64_t width, int64_t head_dim, int num_threads) {
        const py::gil_scoped_release unlocked;
        rotate_rows({type_of(half), at<void>(input), at<void>(output), at<float>(table),
                     at<int32_t>(positions), num_rows, width, head_dim, input_stride, width,
                     num_threads});
    });
    module.def("add_softmax_sums", [](bool half, uintptr_t input, uintptr_t largest, uintptr_t sum,
                                      int64_t num_rows, int64_t width, int num_threads) {
        const py::gil_scoped_release unlocked;
        add_softmax_sums({type_of(half), at<void>(input), at<float>(largest), at<float>(sum), num_rows,
                          width, num_threads});
    });
    module.def("quantize_rows", [](bool half, uintptr_t input, uintptr_t output, uintptr_t scales,
                                   int64_t num_rows, int64_t width, int num_threads) {
        const py::gil_scoped_release unlocked;
        quantize_rows({type_of(half), at<void>(input), at<uint8_t>(output), at<float>(scales),
                       num_rows, width, num_threads});
    });
    module.def("quantized_linear", [](bool half, const std::string& name, uintptr_t input,
                                      uintptr_t input_scales, uintptr_t weight,
                                      uintptr_t weight_scales, uintptr_t bias, uintptr_t output,
                                      uintptr_t quantized, uintptr_t scales, int64_t num_rows,
                                      int64_t depth, int64_t width, int num_threads) {
        const activation function = activation_of(name);
        const py::gil_scoped_release unlocked;
        quantized_linear({type_of(half), function, at<uint8_t>(input), at<float>(input_scales),
                          at<int8_t>(weight), at<float>(weight_scales), at<float>(bias),
                          at<void>(output), at<uint8_t>(quantized), at<float>(scales), num_rows, depth,
                          width, num_threads});
    });
    module.def("packed_linear", [](bool half, const std::string& name, uintptr_t input,
                                   uintptr_t weight, uintptr_t output, int64_t num_rows, int64_t depth,
                                   int64_t width, int num_threads) {
        const activation function = activation_of(name);
        const py::gil_scoped_release unlocked;
        packed_linear({type_of(half), function, at<void>(input), at<void>(weight), at<void>(output),
                       num_rows, depth, width, num_threads});
    });
    module.def("quantize_weight", [](bool half, uintptr_t weight, int64_t num_rows, int64_t width,
                                     uintptr_t output, uintptr_t scales, int num_threads) {
        const py::gil_scoped_release unlocked;
        quantize_weight(type_of(half), at<void>(weight), num_rows, width, at<int8_t>(output),
                        at<float>(scales), num_threads);
    });
    module.def("panels_bytes", &panels_bytes);
    module.def("pack_linear", [](bool half, uintptr_t weight, uintptr_t bias, int64_t width,
                                 int64_t depth, uintptr_t packed, int num_threads) {
        const py::gil_scoped_release unlocked;
        pack_linear(type_of(half), at<void>(weight), at<void>(bias), width, depth, at<void>(packed),
                    num_threads);
    });
    module.def("pack_weight", [](uintptr_t plain, int64_t width, int64_t depth, uintptr_t packed,
                                 int num_threads) {
        const py::gil_scoped_release unlocked;
        pack_weight(at<int8_t>(plain), width, depth, at<int8_t>(packed), num_threads);
    });
    module.def("take_from_panels", [](uintptr_t packed, int64_t width, int64_t row_bytes,
                                      uintptr_t plain) {
        const py::gil_scoped_release unlocked;
        take_from_panels(at<void>(packed), width, row_bytes, at<void>(plain));
    });
}

}  // namespace encoder_engine
