// A head of attention in training: its memory, the terms of its scores, and the keys that queries see.
#pragma once

#include "cpu/simd/training/block_products.h"
#include "cpu/training/attention_gradient.h"

namespace encoder_engine {
namespace EE_ISA {

constexpr int64_t kTrainingQueries = 32;
constexpr float kAttentionLog2e = 1.44269504f;

// Sizes and places of a piece's arrays in the scratch memory, in floats.
template <typename Word>
struct attention_training_layout {
    static constexpr int64_t kSize = kWordElements<Word>;
    int64_t head, head_words, keys, key_words, distances;
    int64_t by_key, by_value, along_keys, along_values, rows, turned_rows, other_rows, scores, others,
        factors, added, grad_added, sums, grad_key, grad_value, end;

    attention_training_layout(int64_t head_dim, int64_t length, int64_t last_place) {
        head = whole(head_dim, kBlockUnit<Word>);
        head_words = head / kSize;
        keys = whole(length, 64);
        key_words = keys / kSize;
        distances = last_place + keys + 64;
        const int64_t queries = kTrainingQueries / kSize;
        int64_t at = 0;
        const auto take = [&](int64_t count) {
            const int64_t from = at;
            at += whole(count, 16);
            return from;
        };
        by_key = take(head_words * keys);
        by_value = take(head_words * keys);
        along_keys = take(key_words * head);
        along_values = take(key_words * head);
        rows = take(kTrainingQueries * (key_words + head_words));
        turned_rows = take(keys * queries);
        other_rows = take(queries * head);
        scores = take(kTrainingQueries * keys);
        others = take(kTrainingQueries * keys);
        factors = take(kTrainingQueries * keys);
        added = take(distances);
        grad_added = take(distances);
        sums = take(kTrainingQueries * head);
        grad_key = take(keys * head);
        grad_value = take(keys * head);
        end = at;
    }
};

template <typename Element>
size_t attention_training_scratch(const attention_training_call& call, const attention_training_piece& most) {
    using Word = typename multiplied_as<Element>::type;
    return static_cast<size_t>(
               attention_training_layout<Word>(call.head_dim, most.length, most.last_place).end) *
           sizeof(float);
}

// One query head of a piece, and what its blocks share.
template <typename Element>
struct attention_training_head {
    using Word = typename multiplied_as<Element>::type;
    const attention_training_call& call;
    const attention_training_piece& piece;
    const attention_training_layout<Word>& at;
    float* memory;
    int64_t head;

    EE_INLINE matrix_operand operand(const head_rows& from, int64_t row, int64_t of_head) const {
        const Element* const data = static_cast<const Element*>(from.data);
        return {std::is_same_v<Element, float> ? element_type::float32 : element_type::bfloat16, false,
                data + row * from.token_stride + of_head * from.head_stride, from.token_stride};
    }
    EE_INLINE head_rows contiguous(const void* data) const {
        return {data, call.num_heads * call.head_dim, call.head_dim};
    }
    EE_INLINE int64_t place(int64_t query) const {
        return call.query_rows == nullptr ? query
                                          : call.query_rows[piece.first_query + query] - piece.first_row;
    }
    // What is added to the score of the first key by a query in this place.
    EE_INLINE float* added(int64_t from, int64_t query) const {
        return memory + from + piece.last_place - place(query);
    }
};

// Writes what is added to a score, times log2(e), for the distances -last_place to length - 1.
template <typename Head>
void lay_out_terms(const Head& now) {
    const attention_training_call& call = now.call;
    const int64_t last = now.piece.last_place, width = 2 * call.bias_reach + 1;
    float* const to = now.memory + now.at.added;
    for (int64_t i = 0; i < now.at.distances; ++i) {
        const int64_t distance = i - last, extent = distance < 0 ? -distance : distance;
        float x = 0.0f;
        if (call.relative_bias != nullptr) {
            const int64_t reach = call.bias_reach;
            const int64_t entry = (distance < -reach ? -reach : distance > reach ? reach : distance) + reach;
            x = call.relative_bias[now.head * width + entry];
        }
        if (call.slopes != nullptr) x -= call.slopes[now.head] * static_cast<float>(extent);
        const bool seen = (call.window < 0 || extent <= call.window) && !(call.causal && distance > 0);
        to[i] = seen ? x * kAttentionLog2e : -__builtin_inff();
    }
}

template <typename Head>
void add_bias_gradient(const Head& now) {
    const int64_t reach = now.call.bias_reach, last = now.piece.last_place;
    float* const to = now.piece.grad_bias + now.head * (2 * reach + 1);
    for (int64_t i = 0; i < last + now.piece.length; ++i) {
        const int64_t distance = i - last;
        const int64_t entry = (distance < -reach ? -reach : distance > reach ? reach : distance) + reach;
        to[entry] += now.memory[now.at.grad_added + i];
    }
}

// A block of queries, and the keys that they see.
struct query_span {
    int64_t first, count, filled;  // queries; filled up to whole tiles
    int64_t first_key, num_keys;   // num_keys: filled up, perhaps beyond the last key
};

template <typename Head>
query_span span_of(const Head& now, int64_t first) {
    const int64_t unit = kBlockUnit<typename Head::Word>;
    query_span span{first, least(kTrainingQueries, now.piece.num_queries - first), 0, 0, 0};
    span.filled = whole(span.count, unit);
    int64_t from = 0, to = now.piece.length;
    if (now.call.window >= 0 && now.call.window < now.at.distances) {
        from = now.place(first) - now.call.window;
        to = least(to, now.place(first + span.count - 1) + now.call.window + 1);
    }
    if (now.call.causal) to = least(to, now.place(first + span.count - 1) + 1);
    from = from < 0 ? 0 : least(from, now.piece.length - 1);
    if (to <= from) to = from + 1;
    span.first_key = from / unit * unit;
    span.num_keys = whole(to, unit) - span.first_key;
    return span;
}

}  // namespace EE_ISA
}  // namespace encoder_engine
