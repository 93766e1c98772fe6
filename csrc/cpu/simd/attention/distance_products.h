// The ranges of queries and keys of a piece, and its products with distance vectors.
#pragma once

#include "cpu/simd/attention/block_places.h"

namespace encoder_engine {
namespace EE_ISA {

// The keys of a sequence that a range of its queries sees.
struct key_range {
    int64_t first, last;

    key_range(const attention_call& call, int64_t length, int64_t first_query, int64_t last_query) {
        first = call.window < 0 || first_query < call.window ? 0 : first_query - call.window;
        first -= first % 2;  // two values may share a word
        // Queries may lie beyond the last key.
        last = call.causal ? least(last_query, length) : length;
        if (call.window >= 0) last = least(last, last_query + least(call.window, length));
    }
};

// The positions of queries in their sequence: the first, and one beyond the last.
struct query_range {
    int64_t first, last;

    query_range(const attention_call& call, const attention_piece& piece, int64_t first_query,
                int64_t last_query) {
        first = place(call, piece, first_query);
        last = place(call, piece, last_query - 1) + 1;
    }
    static int64_t place(const attention_call& call, const attention_piece& piece, int64_t query) {
        return call.query_rows == nullptr
                   ? query
                   : call.query_rows[piece.first_query_row + query] - piece.first_row;
    }
};

// Narrows the entries of the terms to those of the distances between keys and queries.
inline void narrow_entries(const attention_call& call, const key_range& keys,
                           const query_range& queries, score_terms& terms) {
    const int64_t reach = call.distances.reach;
    const auto limited = [=](int64_t distance) EE_INLINED {
        return distance < -reach ? -reach : distance > reach ? reach : distance;
    };
    const int32_t* const middle = call.distances.entries + reach;
    terms.first_entry = terms.last_entry = middle[limited(keys.first - (queries.last - 1))];
    for (int64_t distance = limited(keys.first - (queries.last - 1));
         distance <= limited(keys.last - 1 - queries.first); ++distance) {
        terms.first_entry = least(terms.first_entry, middle[distance]);
        terms.last_entry = terms.last_entry < middle[distance] ? middle[distance] : terms.last_entry;
    }
}

// Calls run(first entry) for the panels of distance vectors that hold entries of [first, last].
template <typename Run>
void for_each_panel(int64_t first, int64_t last, const Run& run) {
    for (int64_t entry = first / kQueryBlock * kQueryBlock; entry <= last; entry += kQueryBlock) run(entry);
}

// Packs the distance vectors of the piece, and multiplies those of keys by all keys.
template <typename Engine>
void prepare_distances(const Engine& engine, const attention_call& call, int64_t head,
                       int64_t num_keys, score_terms& terms) {
    using Element = typename Engine::Operands::Element;
    const auto& at = engine.at;
    float* const scratch = engine.scratch;
    const int64_t last = terms.last_entry - terms.first_entry;
    terms.entries_R = call.distances.entries;
    terms.entries_reach = call.distances.reach;
    terms.row = at.products_row;
    const auto lay_out = [&](const head_rows& vectors, int64_t entry, float* panel) EE_INLINED {
        lay_out_queries<typename Engine::Operands>(
            head_of<Element>(vectors, terms.first_entry + entry, head), vectors.token_stride,
            least(kQueryBlock, last + 1 - entry), call.head_dim, kMostColumns, panel);
    };
    if (call.distances.keys.data != nullptr) {
        terms.of_queries_QN = scratch + at.of_queries_QN;
        for_each_panel(0, last, [&](int64_t entry) EE_INLINED {
            lay_out(call.distances.keys, entry, scratch + at.distance_keys_DN + entry * at.key_width);
        });
    }
    if (call.distances.queries.data != nullptr) {
        terms.of_keys_SN = scratch + at.of_keys_SN;
        for_each_panel(0, last, [&](int64_t entry) EE_INLINED {
            lay_out(call.distances.queries, entry, scratch + at.queries_DQ);
            engine.multiply(scratch + at.keys_SD, num_keys, scratch + at.queries_DQ,
                            scratch + at.of_keys_SN + entry, at.products_row);
        });
    }
}

// Multiplies a block's queries by the distance vectors of its distances.
template <typename Engine>
void multiply_queries(const Engine& engine, const attention_call& call, const key_range& keys,
                      const query_range& places, const typename Engine::Operands::Element* queries,
                      int64_t count, const score_terms& terms) {
    const auto& at = engine.at;
    float* const scratch = engine.scratch;
    score_terms here = terms;
    narrow_entries(call, keys, places, here);
    lay_out_keys<typename Engine::Operands>(queries, call.query.token_stride, count, call.head_dim,
                                            scratch + at.queries_QD);
    for_each_panel(here.first_entry - terms.first_entry, here.last_entry - terms.first_entry,
                   [&](int64_t entry) EE_INLINED {
                       engine.multiply(scratch + at.queries_QD, count,
                                       scratch + at.distance_keys_DN + entry * at.key_width,
                                       scratch + at.of_queries_QN + entry, at.products_row);
                   });
}

}  // namespace EE_ISA
}  // namespace encoder_engine
