// Computes a piece of attention: packs its operands, then attends block by block of queries.
#pragma once

#include "cpu/simd/attention/attention_kernel.h"
#include "cpu/simd/attention/distance_products.h"

namespace encoder_engine {
namespace EE_ISA {

// Computes a piece; `Engine` packs operands and multiplies them, by vectors or by tiles.
template <typename Engine>
void attend_piece(const attention_call& call, const attention_piece& piece,
                  const attention_sizes& sizes, void* memory) {
    using Operands = typename Engine::Operands;
    using Element = typename Operands::Element;
    float* const scratch = static_cast<float*>(memory);
    const typename Engine::layout at(call, sizes);
    const Engine engine{call, at, scratch};
    const int64_t head_dim = call.head_dim, key_head = piece.head * call.num_key_heads / call.num_heads;
    const query_range all(call, piece, piece.first_query, piece.last_query);
    const key_range seen(call, piece.length, all.first, all.last);
    const int64_t key_row = piece.first_row + seen.first, num_seen = seen.last - seen.first;
    engine.lay_out(head_of<Element>(call.key, key_row, key_head), call.key.token_stride,
                   head_of<Element>(call.value, key_row, key_head), call.value.token_stride, num_seen,
                   at.around);
    float* const key_places_S = scratch + at.key_places_S;
    for (int64_t i = 0; i < num_seen; ++i) key_places_S[i] = static_cast<float>(seen.first + i);
    if (piece.num_global > 0) {
        const auto gathered = [&](const head_rows& rows, int64_t where) EE_INLINED {
            return gather_global_rows<Element>(piece, rows, key_head, head_dim, scratch + where);
        };
        engine.lay_out(gathered(call.key, at.gathered_keys_GD), head_dim,
                       gathered(call.value, at.gathered_values_GD), head_dim, piece.num_global,
                       at.global);
        for (int64_t i = 0; i < piece.num_global; ++i) {
            scratch[at.global_places_G + i] = static_cast<float>(piece.global_rows[i] - piece.first_row);
        }
    }
    engine.begin();
    score_terms terms = terms_of(call, piece.head);
    if (call.distances.entries != nullptr) {
        narrow_entries(call, seen, all, terms);
        prepare_distances(engine, call, piece.head, num_seen, terms);
    }
    const int64_t output_stride = call.num_heads * head_dim;
    for (int64_t query = piece.first_query; query < piece.last_query; query += kQueryBlock) {
        const int64_t count = least(kQueryBlock, piece.last_query - query);
        const int64_t row = piece.first_query_row + query;
        const query_range places(call, piece, query, query + count);
        const bool in_order = places.last - places.first == count;
        for (int64_t i = 0; i < kQueryBlock; ++i) {
            const int64_t place = in_order ? places.first + i
                                           : query_range::place(call, piece, query + least(i, count - 1));
            scratch[at.query_places_Q + i] = static_cast<float>(place);
        }
        const key_range keys(call, piece.length, places.first, places.last);
        const int64_t skipped = keys.first - seen.first;
        const query_block block = {
            {{scratch + at.around.keys + skipped * at.key_width,
              scratch + at.around.values + engine.value_offset(skipped), key_places_S + skipped, skipped,
              keys.last - keys.first, true, false},
             {scratch + at.global.keys, scratch + at.global.values, scratch + at.global_places_G, 0,
              piece.num_global, false, true}},
            count,
            scratch + at.query_places_Q,
            in_order,
            call.scale * kLog2E,
            terms.are_there(),
            terms};
        with_number<kMostColumns>(static_cast<int>((count + kLanes - 1) / kLanes), [&](auto columns) EE_INLINED {
            constexpr int kColumns = decltype(columns)::value;
            const Element* const queries = head_of<Element>(call.query, row, piece.head);
            lay_out_queries<Operands>(queries, call.query.token_stride, count, head_dim, kColumns,
                                      scratch + at.queries_DQ);
            if (terms.of_queries_QN != nullptr) {
                multiply_queries(engine, call, keys, places, queries, count, terms);
            }
            const int64_t place = row * call.num_heads + piece.head;
            if (call.statistics.values == nullptr) {
                engine.template attend<kColumns>(block, no_statistics{});
            } else {
                const attention_statistics& to = call.statistics;
                const int64_t width = 6 + to.num_marks;
                const block_statistics<kColumns> statistics = {
                    scratch + at.statistics, to.marks + piece.first_row * to.num_marks, to.num_marks, count};
                engine.template attend<kColumns>(block, statistics);
                statistics.write_out(scratch + at.shift_Q, scratch + at.l_Q, block.places_Q,
                                     to.values + place * width, call.num_heads * width,
                                     to.offsets + place, call.num_heads);
            }
            engine.template write_out<kColumns>(
                count, static_cast<Element*>(call.output) + place * head_dim, output_stride);
        });
    }
    engine.end();
}

// The engine of all instruction sets, by vectors.
template <typename Operands_>
struct vector_engine {
    using Operands = Operands_;
    using Element = typename Operands::Element;
    using layout = attention_layout<Operands::kDepth>;

    const attention_call& call;
    const layout& at;
    float* const scratch;

    static void begin() {}
    static void end() {}
    int64_t value_offset(int64_t key) const { return key / Operands::kDepth * at.width; }

    void lay_out(const Element* keys, int64_t key_stride, const Element* values, int64_t value_stride,
                 int64_t count, const packed_keys& to) const {
        lay_out_keys<Operands>(keys, key_stride, count, call.head_dim, scratch + to.keys);
        lay_out_values<Operands>(values, value_stride, count, call.head_dim, scratch + to.values);
    }
    // products[row][column] = scale * rows . a panel, of packed rows and kQueryBlock transposed ones.
    void multiply(const float* rows, int64_t count, const float* panel, float* products,
                  int64_t products_row) const {
        const int64_t words = (call.head_dim + Operands::kDepth - 1) / Operands::kDepth;
        for_each_tile<kMostColumns>(count, [&](int64_t first, auto tile) EE_INLINED {
            score_tile<Operands, decltype(tile)::value, kMostColumns>(
                rows + first * at.key_width, at.key_width, panel, words, call.scale * kLog2E,
                products + first * products_row, products_row, scratch + at.alpha_Q);
        });
    }
    template <int Columns, typename Statistics>
    void attend(const query_block& block, const Statistics& statistics) const {
        encoder_engine::EE_ISA::attend<Operands, Columns>(at, scratch, call.head_dim, block, statistics);
    }
    template <int Columns>
    void write_out(int64_t count, Element* output, int64_t output_stride) const {
        encoder_engine::EE_ISA::write_out(scratch + at.acc_QD, scratch + at.l_Q, count, call.head_dim,
                                          output, output_stride);
    }
};

template <typename Engine>
size_t attention_scratch_bytes(const attention_call& call, const attention_sizes& sizes) {
    return static_cast<size_t>(typename Engine::layout(call, sizes).end) * sizeof(float);
}

template <typename Engine>
constexpr attention_kernel kAttentionOf = {kQueryBlock, attention_scratch_bytes<Engine>,
                                           attend_piece<Engine>};

template <typename Operands>
constexpr attention_kernel kAttention = kAttentionOf<vector_engine<Operands>>;

}  // namespace EE_ISA
}  // namespace encoder_engine
