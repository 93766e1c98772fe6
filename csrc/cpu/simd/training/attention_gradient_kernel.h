// Attention for training: one head of keys of one sequence, forward or backward.
#pragma once

#include "cpu/simd/training/attention_blocks.h"
#include "cpu/training/training_kernels.h"

namespace encoder_engine {
namespace EE_ISA {

// Queries of a sequence without keys: an output of zeros, which depends on nothing.
template <typename Element>
void zero_queries(const attention_training_head<Element>& now, int64_t first) {
    const attention_training_call& call = now.call;
    const int64_t last = least(first + kTrainingQueries, now.piece.num_queries);
    const bool is_backward = call.is_backward();
    const head_rows to = is_backward ? call.grad_query : now.contiguous(call.output);
    for (int64_t query = now.piece.first_query + first; query < now.piece.first_query + last; ++query) {
        Element* const row = static_cast<Element*>(const_cast<void*>(to.data)) + query * to.token_stride;
        std::memset(row + now.head * to.head_stride, 0, static_cast<size_t>(call.head_dim) * sizeof(Element));
        if (!is_backward) call.statistics[query * call.num_heads + now.head] = 0.0f;
    }
}

template <typename Element>
void write_keys(const attention_training_call& call, const attention_training_piece& piece, const float* from,
                int64_t stride, float factor, const head_rows& rows) {
    Element* const to = static_cast<Element*>(const_cast<void*>(rows.data)) + piece.key_head * rows.head_stride;
    for (int64_t key = 0; key < piece.length; ++key) {
        write_head(from + key * stride, broadcast(factor), to + (piece.first_row + key) * rows.token_stride,
                   call.head_dim);
    }
}

template <typename Element>
void attend_for_training(const attention_training_call& call, const attention_training_piece& piece,
                         void* scratch) {
    using Word = typename multiplied_as<Element>::type;
    const attention_training_layout<Word> at(call.head_dim, piece.length, piece.last_place);
    float* const memory = static_cast<float*>(scratch);
    const int64_t group = call.num_heads / call.num_key_heads, first_head = piece.key_head * group;
    const bool is_backward = call.is_backward();
    attention_training_head<Element> now{call, piece, at, memory, first_head};
    const matrix_operand keys = now.operand(call.key, piece.first_row, piece.key_head);
    const matrix_operand values = now.operand(call.value, piece.first_row, piece.key_head);
    const auto turn = [](matrix_operand x) EE_INLINED {
        x.turned = true;
        return x;
    };
    if (piece.length > 0) {
        lay_out_panels<Word>(keys, 0, piece.length, 0, call.head_dim, memory + at.by_key, at.keys, at.head_words, 0,
                             at.head_words);
        const matrix_operand& along = is_backward ? keys : values;
        lay_out_panels<Word>(turn(along), 0, call.head_dim, 0, piece.length,
                             memory + (is_backward ? at.along_keys : at.along_values), at.head, at.key_words, 0,
                             at.key_words);
        if (is_backward) {
            lay_out_panels<Word>(values, 0, piece.length, 0, call.head_dim, memory + at.by_value, at.keys,
                                 at.head_words, 0, at.head_words);
        }
    }
    if (is_backward) {
        const size_t bytes = static_cast<size_t>(at.keys * at.head) * sizeof(float);
        std::memset(memory + at.grad_key, 0, bytes);
        std::memset(memory + at.grad_value, 0, bytes);
    }
#if defined(__AMX_BF16__)
    configure_tiles();
#endif
    for (; now.head < first_head + group; ++now.head) {
        if (call.has_terms()) lay_out_terms(now);
        std::memset(memory + at.grad_added, 0, static_cast<size_t>(at.distances) * sizeof(float));
        for (int64_t first = 0; first < piece.num_queries; first += kTrainingQueries) {
            if (piece.length == 0) {
                zero_queries(now, first);
            } else if (is_backward) {
                differentiate_block(now, span_of(now, first));
            } else {
                attend_block(now, span_of(now, first));
            }
        }
        if (piece.grad_bias != nullptr) add_bias_gradient(now);
    }
#if defined(__AMX_BF16__)
    _tile_release();
#endif
    if (!is_backward) return;
    write_keys<Element>(call, piece, memory + at.grad_key, at.head, call.scale, call.grad_key);
    write_keys<Element>(call, piece, memory + at.grad_value, at.head, 1.0f, call.grad_value);
}

template <typename Element>
constexpr attention_training_kernel kAttentionTraining = {attention_training_scratch<Element>,
                                                          attend_for_training<Element>};

}  // namespace EE_ISA
}  // namespace encoder_engine
