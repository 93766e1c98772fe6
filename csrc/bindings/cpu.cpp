// The CPU kernels, on tensors given by address: the callers in encoder_engine/ops/native have checked
// their shapes, and keep them alive.
#include "bindings/cpu.h"

#include <cstdint>

#include "cpu/attention.h"

namespace py = pybind11;

namespace encoder_engine {
namespace {

element_type type_of(bool half) { return half ? element_type::bfloat16 : element_type::float32; }

template <typename T>
T* at(uintptr_t address) {
    return reinterpret_cast<T*>(address);
}

}  // namespace

void bind_cpu(py::module_& module) {
    module.def("attention", [](bool half, uintptr_t query, int64_t query_token, int64_t query_head,
                               uintptr_t key, int64_t key_token, int64_t key_head, uintptr_t value,
                               int64_t value_token, int64_t value_head, uintptr_t output,
                               uintptr_t cu_seqlens, int64_t num_sequences, int64_t num_heads,
                               int64_t num_key_heads, int64_t head_dim, float scale, int64_t window, bool causal,
                               uintptr_t alibi_slopes, int num_threads) {
        const py::gil_scoped_release unlocked;
        attention({type_of(half),
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
                   num_threads});
    });
}

}  // namespace encoder_engine
