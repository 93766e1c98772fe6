// Attention of a block of queries of one head, with online softmax over blocks of 96 keys.
//
// How it works (FlashAttention, Dao et al. 2022, 2023): a piece packs the keys and values of its
// sequence once into a thread's scratch memory. For each block of queries and keys it computes the
// scores of a tile in registers and updates, for each query, the running maximum `m`, the sum of
// exponentials `l` and the output before division, `acc`: alpha = 2^(old m - new m) rescales l and acc,
// p = 2^(score - m) is added. Lanes run along queries while scores are computed, so that m and l need no
// step across lanes, and along the head's features while p * values is accumulated. `shift` is m with 0
// in place of -inf, because inf - inf is NaN. Every sequence is computed by itself, in one order.
#pragma once

#include "cpu/simd/score_terms.h"

namespace encoder_engine {
namespace EE_ISA {

// scores[k][q] = scale * keys[k] . queries[q] for a tile of keys; updates the maximum m[q].
template <typename Operands, int Rows, int Columns>
EE_TILE void score_tile(const float* keys_KD, int64_t key_width, const float* queries_DQ,
                        int64_t num_words, float scale, float* scores_KQ, float* m_Q) {
    vfloat sums[Rows][Columns] = {};
    multiply<Operands>(keys_KD, key_width, 1, queries_DQ, Columns * kLanes, num_words, sums);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        vfloat largest = load(m_Q + c * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const vfloat scaled = sums[r][c] * broadcast(scale);
            largest = larger(largest, scaled);
            store(scores_KQ + (r * Columns + c) * kLanes, scaled);
        }
        store(m_Q + c * kLanes, largest);
    }
}

// Turns scores into p = 2^(score - shift), adds them to l and packs them into words.
template <typename Operands, int Columns>
EE_TILE void exponentiate(float* scores_KQ, int64_t num_keys, const float* shift_Q, float* l_Q) {
    vfloat shift[Columns], sum[Columns];
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) {
        shift[c] = load(shift_Q + c * kLanes);
        sum[c] = load(l_Q + c * kLanes);
    }
    constexpr int kDepth = Operands::kDepth;
    const auto exponentiate_keys = [&](int64_t key, int count) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            vfloat weights[kDepth] = {};
#pragma GCC unroll 2
            for (int i = 0; i < count; ++i) {
                weights[i] = exp2(load(scores_KQ + ((key + i) * Columns + c) * kLanes) - shift[c]);
                sum[c] = sum[c] + weights[i];
            }
            store(scores_KQ + (key / kDepth * Columns + c) * kLanes, Operands::join(weights));
        }
    };
    int64_t key = 0;
    for (; key + kDepth <= num_keys; key += kDepth) exponentiate_keys(key, kDepth);
    if (key < num_keys) exponentiate_keys(key, 1);
#pragma GCC unroll 4
    for (int c = 0; c < Columns; ++c) store(l_Q + c * kLanes, sum[c]);
}

// acc[q] = alpha[q] * acc[q] + sum over k of p[k][q] * values[k] for a tile of queries, in `Columns`
// vectors of the head.
template <typename Operands, int Rows, int Columns>
EE_TILE void accumulate_tile(const float* p_KQ, int64_t weights_step, const float* values_KD,
                      int64_t width, int64_t num_words, const float* alpha_Q, float* acc_QD) {
    vfloat sums[Rows][Columns];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) {
            sums[r][c] = broadcast(alpha_Q[r]) * load(acc_QD + r * width + c * kLanes);
        }
    }
    multiply<Operands>(p_KQ, 1, weights_step, values_KD, width, num_words, sums);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
#pragma GCC unroll 4
        for (int c = 0; c < Columns; ++c) store(acc_QD + r * width + c * kLanes, sums[r][c]);
    }
}

// Moves `shift` to the maximum so far: alpha = 2^(old - new) rescales l here, and acc later. A query
// without a key so far has shift 0.
template <int Columns>
EE_TILE void rescale(const float* m_Q, float* shift_Q, float* l_Q, float* alpha_Q) {
#pragma GCC unroll 4
    for (int c = 0; c < Columns * kLanes; c += kLanes) {
        const vfloat largest = load(m_Q + c);
        const vfloat found = largest == -__builtin_inff() ? vfloat{} : largest;
        const vfloat alpha = exp2(smaller(load(shift_Q + c) - found, vfloat{}));
        store(shift_Q + c, found);
        store(alpha_Q + c, alpha);
        store(l_Q + c, load(l_Q + c) * alpha);
    }
}

// Packed keys and values that a block of queries sees.
struct key_span {
    const float* keys_SD;
    const float* values_SD;  // by tiles: values_DS
    const float* places_S;   // within the sequence
    int64_t first, num_keys;  // `first`: among the keys that the piece packed
    bool in_order;           // places count up by one
    bool outside;            // only what lies beyond the window: the rest is in the other span
};

struct query_block {
    key_span spans[2];  // the keys around, and global tokens
    int64_t num_queries;
    const float* places_Q;
    bool in_order;
    float scale;
    bool has_terms;
    score_terms terms;
};

inline block_places places_of(const query_block& block, const key_span& span, int64_t key,
                              int64_t num_keys) {
    return {span.places_S + key, block.places_Q, num_keys, span.in_order && block.in_order, span.outside};
}

template <int Columns>
EE_INLINE void begin_queries(float* m_Q, float* shift_Q, float* l_Q) {
    for (int64_t i = 0; i < Columns * kLanes; i += kLanes) {
        store(m_Q + i, broadcast(-__builtin_inff()));
        store(shift_Q + i, vfloat{});
        store(l_Q + i, vfloat{});
    }
}

// Computes acc and l of one block of queries; the output is acc / l.
template <typename Operands, int Columns>
void attend(const attention_layout<Operands::kDepth>& at, float* scratch, int64_t head_dim, const query_block& block) {
    constexpr int kDepth = Operands::kDepth;
    float* const p_KQ = scratch + at.p_KQ;
    float* const acc_QD = scratch + at.acc_QD;
    float* const m_Q = scratch + at.m_Q;
    float* const shift_Q = scratch + at.shift_Q;
    float* const l_Q = scratch + at.l_Q;
    float* const alpha_Q = scratch + at.alpha_Q;
    begin_queries<Columns>(m_Q, shift_Q, l_Q);
    for (int64_t i = 0; i < block.num_queries * at.width; i += kLanes) store(acc_QD + i, vfloat{});
    const auto attend_block = [&](const key_span& span, int64_t key) {
        const int64_t num_keys = least(kKeyBlock, span.num_keys - key);
        const float* const keys_KD = span.keys_SD + key * at.key_width;
        const float* const values_KD = span.values_SD + key / kDepth * at.width;
        // With terms the maximum is updated by apply_terms: score_tile writes its own to alpha's memory.
        float* const found_Q = block.has_terms ? alpha_Q : m_Q;
        for_each_tile<Columns>(num_keys, [&](int64_t first, auto rows) {
            score_tile<Operands, decltype(rows)::value, Columns>(
                keys_KD + first * at.key_width, at.key_width, scratch + at.queries_DQ,
                (head_dim + kDepth - 1) / kDepth, block.scale,
                p_KQ + first * Columns * kLanes, found_Q);
        });
        if (block.has_terms) {
            apply_terms<Columns>(block.terms, places_of(block, span, key, num_keys), span.first + key,
                                 scratch + at.ramp, p_KQ, m_Q);
        }
        rescale<Columns>(m_Q, shift_Q, l_Q, alpha_Q);
        exponentiate<Operands, Columns>(p_KQ, num_keys, shift_Q, l_Q);
        for (int64_t first = 0; first < at.width; first += kMostColumns * kLanes) {
            const int64_t across = least<int64_t>(kMostColumns, (at.width - first) / kLanes);
            with_number<kMostColumns>(static_cast<int>(across), [&](auto across_head) {
                constexpr int kAcross = decltype(across_head)::value;
                for_each_tile<kAcross>(block.num_queries, [&](int64_t query, auto rows) {
                    accumulate_tile<Operands, decltype(rows)::value, kAcross>(
                        p_KQ + query, Columns * kLanes, values_KD + first, at.width,
                        (num_keys + kDepth - 1) / kDepth, alpha_Q + query, acc_QD + query * at.width + first);
                });
            });
        }
    };
    for (const key_span& span : block.spans) {
        for (int64_t key = 0; key < span.num_keys; key += kKeyBlock) attend_block(span, key);
    }
}

// Writes acc / l of each query.
template <typename Element>
void write_out(const float* acc_QD, const float* l_Q, int64_t num_queries, int64_t head_dim,
               Element* output, int64_t output_stride) {
    for (int64_t query = 0; query < num_queries; ++query, output += output_stride) {
        const vfloat inverse = broadcast(1.0f / l_Q[query]);
        for (int64_t first = 0; first < head_dim; first += kLanes, acc_QD += kLanes) {
            store_part(output, first, head_dim, load(acc_QD) * inverse);
        }
    }
}

// The keys of a sequence that a range of its queries sees.
struct key_range {
    int64_t first, last;

    key_range(const attention_call& call, int64_t length, int64_t first_query, int64_t last_query) {
        first = call.window < 0 || first_query < call.window ? 0 : first_query - call.window;
        first -= first % 2;  // two values may share a word
        last = call.causal ? last_query : length;
        if (call.window >= 0) last = least(last, last_query + least(call.window, length));
    }
};

// The places of queries in their sequence: the first, and one beyond the last.
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
    const auto limited = [=](int64_t distance) {
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

// Packs the distance vectors of the piece, and multiplies those of keys by all keys.
template <typename Engine>
void prepare_distances(const Engine& engine, const attention_call& call, int64_t head,
                       int64_t num_keys, score_terms& terms) {
    using Element = typename Engine::Operands::Element;
    const auto& at = engine.at;
    const distance_vectors& distances = call.distances;
    const int64_t count = terms.last_entry - terms.first_entry + 1;
    terms.entries_R = distances.entries;
    terms.entries_reach = distances.reach;
    terms.panel = whole(num_keys, 16) * kQueryBlock;
    if (distances.keys.data != nullptr) {
        lay_out_keys<typename Engine::Operands>(
            head_of<Element>(distances.keys, terms.first_entry, head), distances.keys.token_stride,
            count, call.head_dim, engine.scratch + at.distance_keys_ND);
        terms.of_queries_NQ = engine.scratch + at.of_queries_NQ;
    }
    if (distances.queries.data == nullptr) return;
    float* const of_keys_NSQ = engine.scratch + at.of_keys_NSQ;
    terms.of_keys_NSQ = of_keys_NSQ;
    for (int64_t entry = 0; entry < count; entry += kQueryBlock) {
        lay_out_queries<typename Engine::Operands>(
            head_of<Element>(distances.queries, terms.first_entry + entry, head),
            distances.queries.token_stride, least(kQueryBlock, count - entry), call.head_dim,
            kMostColumns, engine.scratch + at.queries_DQ);
        engine.template multiply<kMostColumns>(engine.scratch + at.keys_SD, num_keys,
                                               of_keys_NSQ + entry / kQueryBlock * terms.panel);
    }
}

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
        const auto gathered = [&](const head_rows& rows, int64_t where) {
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
        with_number<kMostColumns>(static_cast<int>((count + kLanes - 1) / kLanes), [&](auto columns) {
            constexpr int kColumns = decltype(columns)::value;
            lay_out_queries<Operands>(head_of<Element>(call.query, row, piece.head),
                                      call.query.token_stride, count, head_dim, kColumns,
                                      scratch + at.queries_DQ);
            if (terms.of_queries_NQ != nullptr) {
                score_terms here = terms;
                narrow_entries(call, keys, places, here);
                const int64_t first = here.first_entry - terms.first_entry;
                engine.template multiply<kColumns>(
                    scratch + at.distance_keys_ND + first * at.key_width,
                    here.last_entry - here.first_entry + 1,
                    scratch + at.of_queries_NQ + first * kColumns * kLanes);
            }
            engine.template attend<kColumns>(block);
            engine.template write_out<kColumns>(
                count, static_cast<Element*>(call.output) + row * output_stride + piece.head * head_dim,
                output_stride);
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
    // products[row][column] = scale * rows . queries, of packed rows.
    template <int Columns>
    void multiply(const float* rows, int64_t count, float* products) const {
        const int64_t words = (call.head_dim + Operands::kDepth - 1) / Operands::kDepth;
        for_each_tile<Columns>(count, [&](int64_t first, auto tile) {
            score_tile<Operands, decltype(tile)::value, Columns>(
                rows + first * at.key_width, at.key_width, scratch + at.queries_DQ, words,
                call.scale * kLog2E, products + first * Columns * kLanes, scratch + at.alpha_Q);
        });
    }
    template <int Columns>
    void attend(const query_block& block) const {
        encoder_engine::EE_ISA::attend<Operands, Columns>(at, scratch, call.head_dim, block);
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
