// Blocks of queries of attention in training: forward and backward.
//
// How it works: keys and values are laid out once as words. Blocks of 32 queries follow: the scores of a
// block by the keys that its window reaches are products, their softmax a pass over each row. The
// forward pass keeps log2 of each row's sum. The backward pass computes the weights again from it, and
// with D = sum over d of (output grad_output), a row's number,
//
//     grad_scores = weights * (kept * (grad_output value') - D)
//
// where `kept` is 0 or 1 / (1 - dropout), drawn again. Everything that a score is changed by depends on
// the distance alone: window, causality, slopes and bias are one vector of a number for each distance.
#pragma once

#include "cpu/simd/norm_kernel.h"
#include "cpu/simd/training/attention_head.h"
#include "cpu/simd/training/dropout.h"

namespace encoder_engine {
namespace EE_ISA {

// Writes scores times log2(e) of a block, -infinity beyond the last key.
template <typename Head>
void multiply_scores(const Head& now, const query_span& span) {
    const auto& at = now.at;
    float* const rows = now.memory + at.rows;
    const int64_t first = now.piece.first_query + span.first;
    std::memset(rows, 0, static_cast<size_t>(span.filled * at.head_words) * sizeof(float));
    lay_out_rows<typename Head::Word, false>(now.operand(now.call.query, first, now.head), 0, span.count, 0,
                                             now.call.head_dim, rows, at.head_words);
    multiply_block<typename Head::Word>({rows, at.head_words, now.memory + at.by_key + span.first_key, at.keys,
                                         now.memory + at.scores, at.keys, span.filled, span.num_keys,
                                         at.head_words, false});
    const vfloat scale = broadcast(now.call.scale * kAttentionLog2e);
    const int64_t there = now.piece.length - span.first_key;
    const bool has_terms = now.call.has_terms();
    for (int64_t r = 0; r < span.count; ++r) {
        float* const scores = now.memory + at.scores + r * at.keys;
        const float* const added = now.added(at.added, span.first + r) + span.first_key;
        for (int64_t c = 0; c < span.num_keys; c += kLanes) {
            vfloat x = load(scores + c) * scale;
            if (has_terms) x = x + load(added + c);
            store(scores + c, x);
        }
        for (int64_t c = there; c < span.num_keys; ++c) scores[c] = -__builtin_inff();
    }
}

template <typename Head>
void draw_factors(const Head& now, const query_span& span) {
    const dropout_rule rule(now.call.seed, now.call.dropout);
    for (int64_t r = 0; r < span.count; r += 4) {
        draw_weights(rule, now.piece.sequence * now.call.num_heads + now.head, span.first + r, span.first_key,
                     span.num_keys, now.memory + now.at.factors + r * now.at.keys, now.at.keys);
    }
}

template <typename Element>
EE_INLINE void write_head(const float* from, vfloat factor, Element* to, int64_t width) {
    for (int64_t d = 0; d < width; d += kLanes) store_part(to, d, width, load(from + d) * factor);
}

template <typename Element>
void attend_block(const attention_training_head<Element>& now, const query_span& span) {
    using Word = typename multiplied_as<Element>::type;
    const auto& at = now.at;
    const bool drops = now.call.dropout > 0.0f;
    multiply_scores(now, span);
    if (drops) draw_factors(now, span);
    float inverses[kTrainingQueries];
    const int64_t first = now.piece.first_query + span.first;
    for (int64_t r = 0; r < span.count; ++r) {
        float* const scores = now.memory + at.scores + r * at.keys;
        vfloat most = load(scores);
        for (int64_t c = kLanes; c < span.num_keys; c += kLanes) most = larger(most, load(scores + c));
        float lanes[kLanes], largest;
        store(lanes, most);
        largest = lanes[0];
        for (int lane = 1; lane < kLanes; ++lane) largest = lanes[lane] > largest ? lanes[lane] : largest;
        row_sum sum;
        for_each_vector(span.num_keys, [&](int64_t c, int part) EE_INLINED {
            vfloat y = exp2(load(scores + c) - largest);
            sum.parts[part] = sum.parts[part] + y;
            if (drops) y = y * load(now.memory + at.factors + r * at.keys + c);
            store(scores + c, y);
        });
        const float total = sum.total();
        inverses[r] = 1.0f / total;
        now.call.statistics[(first + r) * now.call.num_heads + now.head] = largest + __builtin_log2f(total);
    }
    const int64_t words = span.num_keys / kWordElements<Word>;
    lay_out_rows<Word, false>({element_type::float32, false, now.memory + at.scores, at.keys}, 0, span.filled,
                              0, span.num_keys, now.memory + at.rows, words);
    multiply_block<Word>({now.memory + at.rows, words,
                          now.memory + at.along_values + span.first_key / kWordElements<Word> * at.head,
                          at.head, now.memory + at.sums, at.head, span.filled, at.head, words, false});
    Element* const output = static_cast<Element*>(now.call.output);
    for (int64_t r = 0; r < span.count; ++r) {
        write_head(now.memory + at.sums + r * at.head, broadcast(inverses[r]),
                   output + ((first + r) * now.call.num_heads + now.head) * now.call.head_dim,
                   now.call.head_dim);
    }
}

// sum over d of output times its gradient, of one row.
template <typename Element>
EE_INLINE float multiply_rows(const Element* a, const Element* b, int64_t width) {
    row_sum sum;
    for_each_vector(width, [&](int64_t d, int part) EE_INLINED {
        sum.parts[part] = sum.parts[part] + load_part(a, d, width) * load_part(b, d, width);
    });
    return sum.total();
}

// Adds turned(left) . right to sums over the keys of a block, left [queries, keys] in float32.
template <typename Element>
void add_turned(const attention_training_head<Element>& now, const query_span& span, int64_t left,
                const head_rows& right, int64_t sums) {
    using Word = typename multiplied_as<Element>::type;
    const auto& at = now.at;
    const int64_t words = span.filled / kWordElements<Word>;
    lay_out_rows<Word, false>({element_type::float32, true, now.memory + left, at.keys}, 0, span.num_keys, 0,
                              span.count, now.memory + at.turned_rows, words);
    matrix_operand beside = now.operand(right, now.piece.first_query + span.first, now.head);
    beside.turned = true;
    lay_out_panels<Word>(beside, 0, now.call.head_dim, 0, span.count, now.memory + at.other_rows, at.head,
                         words, 0, words);
    multiply_block<Word>({now.memory + at.turned_rows, words, now.memory + at.other_rows, at.head,
                          now.memory + sums + span.first_key * at.head, at.head, span.num_keys, at.head, words,
                          true});
}

template <typename Element>
void differentiate_block(const attention_training_head<Element>& now, const query_span& span) {
    using Word = typename multiplied_as<Element>::type;
    const auto& at = now.at;
    const attention_training_call& call = now.call;
    const int64_t first = now.piece.first_query + span.first, row = call.num_heads * call.head_dim;
    const head_rows grads = now.contiguous(call.grad_output);
    multiply_scores(now, span);
    float* const rows = now.memory + at.rows;
    std::memset(rows, 0, static_cast<size_t>(span.filled * at.head_words) * sizeof(float));
    lay_out_rows<Word, false>(now.operand(grads, first, now.head), 0, span.count, 0, call.head_dim, rows,
                              at.head_words);
    multiply_block<Word>({rows, at.head_words, now.memory + at.by_value + span.first_key, at.keys,
                          now.memory + at.others, at.keys, span.filled, span.num_keys, at.head_words, false});
    const bool drops = call.dropout > 0.0f;
    if (drops) draw_factors(now, span);
    const Element* const output = static_cast<const Element*>(call.output) + now.head * call.head_dim;
    const Element* const grad = static_cast<const Element*>(call.grad_output) + now.head * call.head_dim;
    for (int64_t r = 0; r < span.count; ++r) {
        float* const weights = now.memory + at.scores + r * at.keys;
        float* const others = now.memory + at.others + r * at.keys;
        const float* const factors = now.memory + at.factors + r * at.keys;
        const vfloat mean =
            broadcast(multiply_rows(output + (first + r) * row, grad + (first + r) * row, call.head_dim));
        const vfloat log_sum = broadcast(call.statistics[(first + r) * call.num_heads + now.head]);
        for (int64_t c = 0; c < span.num_keys; c += kLanes) {
            const vfloat weight = exp2(load(weights + c) - log_sum);
            vfloat kept = weight, other = load(others + c);
            if (drops) {
                kept = kept * load(factors + c);
                other = other * load(factors + c);
            }
            store(weights + c, kept);
            store(others + c, weight * (other - mean));
        }
        if (now.piece.grad_bias != nullptr) {
            float* const to = now.added(at.grad_added, span.first + r) + span.first_key;
            for (int64_t c = 0; c < span.num_keys; c += kLanes) store(to + c, load(to + c) + load(others + c));
        }
    }
    add_turned(now, span, at.scores, grads, at.grad_value);
    add_turned(now, span, at.others, call.query, at.grad_key);
    const int64_t words = span.num_keys / kWordElements<Word>;
    lay_out_rows<Word, false>({element_type::float32, false, now.memory + at.others, at.keys}, 0, span.filled, 0,
                              span.num_keys, rows, words);
    multiply_block<Word>({rows, words,
                          now.memory + at.along_keys + span.first_key / kWordElements<Word> * at.head, at.head,
                          now.memory + at.sums, at.head, span.filled, at.head, words, false});
    Element* const to = static_cast<Element*>(const_cast<void*>(call.grad_query.data));
    for (int64_t r = 0; r < span.count; ++r) {
        write_head(now.memory + at.sums + r * at.head, broadcast(call.scale),
                   to + (first + r) * call.grad_query.token_stride + now.head * call.grad_query.head_stride,
                   call.head_dim);
    }
}

}  // namespace EE_ISA
}  // namespace encoder_engine
