// Binds a plan's steps, with weights by address: encoder_engine/inference/program.py keeps them alive.
//
// All arguments are numbers but for names. `half`: rows are bfloat16, else float32. Addresses are 0 for
// what is not there. source, target, ..: numbers of buffers, -1 for none; 0 is the input, with a row per
// token, and 1 the output, with the rows of the step that writes it. rows: "tokens", "selected",
// "global", "sequences" or "keys". function: "none", "gelu", "gelu_tanh", "silu", "relu" or "tanh". A step that
// does not fit its buffers raises ValueError.
//
// PANEL_WIDTH: the width of a gated product is a multiple of it.
//
//   add_buffer(row_bytes, rows="tokens") -> number
//   embed(half, tokens, num_tokens, positions, num_positions, segments, num_segments, weight, bias,
//         width, epsilon, target, scaled=False)         tables and norm; weight 0: no norm
//   packed_linear(half, function, weight, depth, width, source, target, gated=False)
//   quantized_linear(half, function, weight, weight_scales, bias, depth, width, source, source_scales,
//                    target, quantized, scales, gated=False)
//   normalize(half, weight, bias, width, epsilon, centred, source, residual, total, target, quantized,
//             scales)
//   normalize_heads(half, weight, bias, width, num_heads, row_width, first, epsilon, centred, heads)
//                                                       each of some heads of a row, in place
//   quantize(half, width, source, target, scales)
//   activate(half, function, gated, width, source, target)
//   add(half, width, source, other, target)
//   rotate(half, table, width, head_dim, row_width, heads, turned=0)   turned: features; 0: all
//   attend(half, num_heads, num_key_heads, head_dim, scale, query, key, value, target, window=-1,
//          causal=False, alibi_slopes=0, relative_bias=0, bias_reach=0, distance_keys=(0, 0, 0),
//          distance_queries=(0, 0, 0), entries=0, entries_reach=0, sees_global=False)
//       query, key, value: (buffer, first element in a row, elements of a row); distance_*: (address,
//       elements between vectors, between heads)
//   take_rows(half, width, source, target, rows="selected")
//                                                       tokens -> selected, global or keys; rows: of the output
//   take_heads(half, width, source, target)             likewise, a part; source: (buffer, first, row)
//   put_rows(half, width, source, target)               selected or global -> over tokens
//   take_neighbours(half, width, kernel_size, source, target)
//   pool(half, mode, normalized, width, source, target)  tokens or selected -> sequences
//   widen(width, source, target)                        bfloat16 -> float32
//   buffer_bytes(num_rows, num_sequences=1, num_selected=0, num_global=0) -> bytes
//   run(source, target, cu_seqlens, positions, num_sequences, num_rows, num_threads, ids=0, type_ids=0,
//       position_ids=0, selected_rows=0, cu_selected=0, global_rows=0, cu_global=0, token_scales=0,
//       key_tokens=0, cu_keys=0, token_keys=0, selected_keys=0)
//       int32 but for rows and scales; raises ValueError for what is missing, IndexError for an id
//       outside its table
#include "cpu/plan/plan.h"

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/parts.h"
#include "bindings/cpu_arguments.h"

namespace py = pybind11;

namespace encoder_engine {

namespace {

using heads_argument = std::tuple<int, int64_t, int64_t>;

row_domain row_domain_of(const std::string& name) {
    if (name == "tokens") return row_domain::tokens;
    if (name == "selected") return row_domain::selected;
    if (name == "global") return row_domain::global;
    if (name == "sequences") return row_domain::sequences;
    if (name == "keys") return row_domain::keys;
    throw py::value_error("no rows '" + name + "'; there are tokens, selected, global, sequences, keys");
}

void check_gated(bool gated, int64_t width) {
    if (gated && width % kPanelWidth != 0) {
        throw py::value_error("the width of a gated product must be a multiple of " +
                              std::to_string(kPanelWidth) + ", got " + std::to_string(width));
    }
}

}  // namespace

void bind_plan(py::module_& module) {
    module.attr("PANEL_WIDTH") = kPanelWidth;
    py::class_<plan>(module, "Plan")
        .def(py::init<>())
        .def("add_buffer",
             [](plan& self, int64_t row_bytes, const std::string& rows) {
                 return self.add_buffer(row_bytes, row_domain_of(rows));
             },
             py::arg("row_bytes"), py::arg("rows") = "tokens")
        .def("embed",
             [](plan& self, bool half, uintptr_t tokens, int64_t num_tokens, uintptr_t positions,
                int64_t num_positions, uintptr_t segments, int64_t num_segments, uintptr_t weight,
                uintptr_t bias, int64_t width, float epsilon, int output, bool scaled) {
                 embedding_call call{};
                 call.type = type_of(half);
                 call.tokens = {at<void>(tokens), nullptr, num_tokens};
                 call.positions = {at<void>(positions), nullptr, num_positions};
                 call.segments = {at<void>(segments), nullptr, num_segments};
                 call.weight = at<void>(weight);
                 call.bias = at<void>(bias);
                 call.width = width;
                 call.epsilon = epsilon;
                 self.add(call, output, scaled);
             },
             py::arg("half"), py::arg("tokens"), py::arg("num_tokens"), py::arg("positions"),
             py::arg("num_positions"), py::arg("segments"), py::arg("num_segments"), py::arg("weight"),
             py::arg("bias"), py::arg("width"), py::arg("epsilon"), py::arg("target"),
             py::arg("scaled") = false)
        .def("normalize_heads",
             [](plan& self, bool half, uintptr_t weight, uintptr_t bias, int64_t width,
                int64_t num_heads, int64_t row_width, int64_t first, float epsilon, bool centred,
                int heads) {
                 head_norm_call call{};
                 call.type = type_of(half);
                 call.weight = at<void>(weight);
                 call.bias = at<void>(bias);
                 call.width = width;
                 call.num_heads = num_heads;
                 call.row_stride = row_width;
                 call.epsilon = epsilon;
                 call.centred = centred;
                 self.add(call, heads, first);
             })
        .def("take_rows",
             [](plan& self, bool half, int64_t width, int input, int output, const std::string& rows) {
                 take_call call{};
                 call.row_bytes = width * element_bytes(type_of(half));
                 self.add(call, input, output, row_domain_of(rows));
             },
             py::arg("half"), py::arg("width"), py::arg("source"), py::arg("target"),
             py::arg("rows") = "selected")
        .def("take_heads",
             [](plan& self, bool half, int64_t width, const heads_argument& input, int output) {
                 const int64_t item_bytes = element_bytes(type_of(half));
                 take_call call{};
                 call.row_bytes = width * item_bytes;
                 call.first = std::get<1>(input) * item_bytes;
                 call.input_row_bytes = std::get<2>(input) * item_bytes;
                 self.add(call, std::get<0>(input), output);
             })
        .def("pool",
             [](plan& self, bool half, const std::string& mode, bool normalized, int64_t width,
                int input, int output) {
                 pooling_call call{};
                 call.type = type_of(half);
                 call.mode = pooling_mode_of(mode);
                 call.normalized = normalized;
                 call.width = width;
                 self.add(call, input, output);
             })
        .def("widen", &plan::add_widening)
        .def("put_rows",
             [](plan& self, bool half, int64_t width, int input, int output) {
                 take_call call{};
                 call.row_bytes = width * element_bytes(type_of(half));
                 self.add_putting(call, input, output);
             })
        .def("take_neighbours",
             [](plan& self, bool half, int64_t width, int64_t kernel_size, int input, int output) {
                 if (kernel_size < 1 || kernel_size % 2 == 0) {
                     throw py::value_error("kernel_size must be odd, got " + std::to_string(kernel_size));
                 }
                 neighbours_call call{};
                 call.row_bytes = width * element_bytes(type_of(half));
                 call.kernel_size = kernel_size;
                 self.add(call, input, output);
             })
        .def("attend",
             [](plan& self, bool half, int64_t num_heads, int64_t num_key_heads, int64_t head_dim,
                float scale, const heads_argument& query, const heads_argument& key,
                const heads_argument& value, int output, int64_t window, bool causal,
                uintptr_t alibi_slopes, uintptr_t relative_bias, int64_t bias_reach,
                const vectors_argument& distance_keys, const vectors_argument& distance_queries,
                uintptr_t entries, int64_t entries_reach, bool sees_global) {
                 attention_call call{};
                 call.type = type_of(half);
                 call.num_heads = num_heads;
                 call.num_key_heads = num_key_heads;
                 call.head_dim = head_dim;
                 call.scale = scale;
                 call.window = window;
                 call.causal = causal;
                 call.alibi_slopes = at<float>(alibi_slopes);
                 call.relative_bias = at<float>(relative_bias);
                 call.bias_reach = bias_reach;
                 call.distances = distances_of(distance_keys, distance_queries, entries, entries_reach);
                 const auto heads = [](const heads_argument& x) {
                     return plan_heads{std::get<0>(x), std::get<1>(x), std::get<2>(x)};
                 };
                 self.add(call, heads(query), heads(key), heads(value), output, sees_global);
             },
             py::arg("half"), py::arg("num_heads"), py::arg("num_key_heads"), py::arg("head_dim"),
             py::arg("scale"), py::arg("query"), py::arg("key"), py::arg("value"), py::arg("target"),
             py::arg("window") = -1, py::arg("causal") = false, py::arg("alibi_slopes") = 0,
             py::arg("relative_bias") = 0, py::arg("bias_reach") = 0,
             py::arg("distance_keys") = vectors_argument{}, py::arg("distance_queries") = vectors_argument{},
             py::arg("entries") = 0, py::arg("entries_reach") = 0, py::arg("sees_global") = false)
        .def("packed_linear",
             [](plan& self, bool half, const std::string& function, uintptr_t weight, int64_t depth,
                int64_t width, int input, int output, bool gated) {
                 check_gated(gated, width);
                 packed_linear_call call{};
                 call.type = type_of(half);
                 call.function = activation_of(function);
                 call.weight = at<void>(weight);
                 call.depth = depth;
                 call.width = width;
                 call.gated = gated;
                 self.add(call, input, output);
             },
             py::arg("half"), py::arg("function"), py::arg("weight"), py::arg("depth"), py::arg("width"),
             py::arg("source"), py::arg("target"), py::arg("gated") = false)
        .def("quantized_linear",
             [](plan& self, bool half, const std::string& function, uintptr_t weight,
                uintptr_t weight_scales, uintptr_t bias, int64_t depth, int64_t width, int input,
                int input_scales, int output, int quantized, int scales, bool gated) {
                 check_gated(gated, width);
                 quantized_linear_call call{};
                 call.type = type_of(half);
                 call.function = activation_of(function);
                 call.weight = at<int8_t>(weight);
                 call.weight_scales = at<float>(weight_scales);
                 call.bias = at<float>(bias);
                 call.depth = depth;
                 call.width = width;
                 call.gated = gated;
                 self.add(call, input, input_scales, output, quantized, scales);
             },
             py::arg("half"), py::arg("function"), py::arg("weight"), py::arg("weight_scales"),
             py::arg("bias"), py::arg("depth"), py::arg("width"), py::arg("source"),
             py::arg("source_scales"), py::arg("target"), py::arg("quantized"), py::arg("scales"),
             py::arg("gated") = false)
        .def("normalize",
             [](plan& self, bool half, uintptr_t weight, uintptr_t bias, int64_t width, float epsilon,
                bool centred, int input, int residual, int sum, int output, int quantized,
                int scales) {
                 norm_call call{};
                 call.type = type_of(half);
                 call.weight = at<void>(weight);
                 call.bias = at<void>(bias);
                 call.width = width;
                 call.epsilon = epsilon;
                 call.centred = centred;
                 self.add(call, input, residual, sum, output, quantized, scales);
             })
        .def("quantize",
             [](plan& self, bool half, int64_t width, int input, int output, int scales) {
                 quantize_call call{};
                 call.type = type_of(half);
                 call.width = width;
                 self.add(call, input, output, scales);
             })
        .def("activate",
             [](plan& self, bool half, const std::string& function, bool gated, int64_t width, int input,
                int output) {
                 activation_call call{};
                 call.type = type_of(half);
                 call.function = activation_of(function);
                 call.gated = gated;
                 call.width = width;
                 self.add(call, input, output);
             })
        .def("add",
             [](plan& self, bool half, int64_t width, int input, int other, int output) {
                 sum_call call{};
                 call.type = type_of(half);
                 call.width = width;
                 self.add(call, input, other, output);
             })
        .def("rotate",
             [](plan& self, bool half, uintptr_t table, int64_t width, int64_t head_dim,
                int64_t row_width, int heads, int64_t turned) {
                 rotary_call call{};
                 call.turned = turned;
                 call.type = type_of(half);
                 call.table = at<float>(table);
                 call.width = width;
                 call.head_dim = head_dim;
                 call.input_stride = call.output_stride = row_width;
                 self.add(call, heads);
             },
             py::arg("half"), py::arg("table"), py::arg("width"), py::arg("head_dim"),
             py::arg("row_width"), py::arg("heads"), py::arg("turned") = 0)
        .def("buffer_bytes",
             [](const plan& self, int64_t num_rows, int64_t num_sequences, int64_t num_selected,
                int64_t num_global) {
                 // Only the totals count: as if all rows were those of one sequence.
                 std::vector<int32_t> selected(static_cast<size_t>(num_sequences) + 1), global = selected;
                 selected.back() = static_cast<int32_t>(num_selected);
                 global.back() = static_cast<int32_t>(num_global);
                 plan_batch batch{};
                 batch.num_rows = num_rows;
                 batch.num_sequences = num_sequences;
                 batch.cu_selected = selected.data();
                 batch.cu_global = global.data();
                 return self.buffer_bytes(batch);
             },
             py::arg("num_rows"), py::arg("num_sequences") = 1, py::arg("num_selected") = 0,
             py::arg("num_global") = 0)
        .def("run",
             [](const plan& self, uintptr_t input, uintptr_t output, uintptr_t cu_seqlens,
                uintptr_t positions, int64_t num_sequences, int64_t num_rows, int num_threads,
                uintptr_t ids, uintptr_t type_ids, uintptr_t position_ids, uintptr_t selected_rows,
                uintptr_t cu_selected, uintptr_t global_rows, uintptr_t cu_global,
                uintptr_t token_scales, uintptr_t key_tokens, uintptr_t cu_keys, uintptr_t token_keys,
                uintptr_t selected_keys) {
                 const py::gil_scoped_release unlocked;
                 self.run({at<void>(input), at<void>(output), at<int32_t>(cu_seqlens),
                           at<int32_t>(positions), num_sequences, num_rows, num_threads,
                           at<int32_t>(ids), at<int32_t>(type_ids), at<int32_t>(position_ids),
                           at<int32_t>(selected_rows), at<int32_t>(cu_selected),
                           at<int32_t>(global_rows), at<int32_t>(cu_global),
                           at<float>(token_scales), at<int32_t>(key_tokens),
                           at<int32_t>(cu_keys), at<int32_t>(token_keys), at<int32_t>(selected_keys)});
             },
             py::arg("source"), py::arg("target"), py::arg("cu_seqlens"), py::arg("positions"),
             py::arg("num_sequences"), py::arg("num_rows"), py::arg("num_threads"), py::arg("ids") = 0,
             py::arg("type_ids") = 0, py::arg("position_ids") = 0, py::arg("selected_rows") = 0,
             py::arg("cu_selected") = 0, py::arg("global_rows") = 0, py::arg("cu_global") = 0,
             py::arg("token_scales") = 0, py::arg("key_tokens") = 0, py::arg("cu_keys") = 0,
             py::arg("token_keys") = 0, py::arg("selected_keys") = 0);
}

}  // namespace encoder_engine
