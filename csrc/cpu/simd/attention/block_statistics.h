// Statistics of the weights of a block of queries, summed while attend computes m and l.
//
// How it works: a weight is p / l, so that each statistic is a sum of p that alpha rescales as it does
// l. The entropy is ln l - (sum of p * ln p) / l, ln p the score less `shift`: both terms are positive,
// and nothing cancels. The greatest weight is 1 / l; `best` is the first place whose score is m. Of the
// tokens near a query the scores are kept, and turned into weights at the end.
#pragma once

#include "cpu/simd/attention/block_places.h"

namespace encoder_engine {
namespace EE_ISA {

// For attention without statistics.
struct no_statistics {
    static constexpr bool kAreThere = false;

    struct sums {
        EE_INLINE void add(int64_t, int, vfloat, vfloat, vfloat) {}
        EE_INLINE void keep() const {}
    };

    EE_INLINE void begin() const {}
    EE_INLINE void rescale(const float*, const float*, const float*) const {}
    EE_INLINE void see(const block_places&, const float*, const float*) const {}
    EE_INLINE sums sums_of(const block_places&) const { return {}; }
};

// Rows of kQueryBlock in the scratch memory; those of marks are the last.
enum statistics_row { kBest, kSurprise, kDistance, kNear, kMarked = kNear + 3 };

template <int Columns>
struct block_statistics {
    static constexpr bool kAreThere = true;

    float* rows;
    const uint8_t* marks_SC;  // of the sequence
    int64_t num_marks;
    int64_t num_queries;

    EE_INLINE float* row(int64_t which) const { return rows + which * kQueryBlock; }

    EE_TILE void begin() const {
        for (int64_t i = 0; i < Columns * kLanes; i += kLanes) {
            store(row(kBest) + i, broadcast(__builtin_inff()));
            store(row(kSurprise) + i, vfloat{});
            store(row(kDistance) + i, vfloat{});
            for (int64_t n = kNear; n < kMarked; ++n) store(row(n) + i, broadcast(-__builtin_inff()));
            for (int64_t n = kMarked; n < kMarked + num_marks; ++n) store(row(n) + i, vfloat{});
        }
    }

    // Before shift, of which l is still the sum, moves to the maximum m.
    EE_TILE void rescale(const float* m_Q, const float* shift_Q, const float* l_Q) const {
        for (int64_t i = 0; i < Columns * kLanes; i += kLanes) {
            const vfloat largest = load(m_Q + i), shift = load(shift_Q + i);
            const vfloat found = largest == -__builtin_inff() ? vfloat{} : largest;
            const vfloat alpha = exp2(smaller(shift - found, vfloat{}));
            store(row(kBest) + i, found == shift ? load(row(kBest) + i) : broadcast(__builtin_inff()));
            store(row(kSurprise) + i,
                  (load(row(kSurprise) + i) + load(l_Q + i) * (shift - found)) * alpha);
            store(row(kDistance) + i, load(row(kDistance) + i) * alpha);
            for (int64_t n = kMarked; n < kMarked + num_marks; ++n) {
                store(row(n) + i, load(row(n) + i) * alpha);
            }
        }
    }

    // Takes what only some of a block's scores are needed for.
    EE_INLINE void see(const block_places& places, const float* scores_KQ, const float* shift_Q) const {
        see_near(places, scores_KQ);
        if (num_marks > 0) add_marked(places, scores_KQ, shift_Q);
    }

    // Keeps the scores of the tokens before, at and after each query.
    EE_TILE void see_near(const block_places& places, const float* scores_KQ) const {
        const float* const keys = places.keys_K;
        const float* const queries = places.queries_Q;
        if (keys[0] > queries[num_queries - 1] + 1.0f) return;
        if (keys[places.num_keys - 1] < queries[0] - 1.0f) return;
        for (int64_t n = kNear; n < kMarked; ++n) {
            const float offset = static_cast<float>(n - kNear - 1);
            const float ahead = queries[0] + offset - keys[0];
            // Both rise; the keys of a block that is not `outside` count up by one.
            int64_t key = places.outside || ahead < 0.0f ? 0 : static_cast<int64_t>(ahead);
            for (int64_t query = 0; query < num_queries; ++query) {
                const float wanted = queries[query] + offset;
                while (key < places.num_keys && keys[key] < wanted) ++key;
                if (key >= places.num_keys) break;
                if (keys[key] != wanted) continue;
                const float score = scores_KQ[key * Columns * kLanes + query];
                // Of a key in two spans, one is hidden.
                if (score > row(n)[query]) row(n)[query] = score;
            }
        }
    }

    // Adds the p of the keys that have marks, which are few.
    EE_TILE void add_marked(const block_places& places, const float* scores_KQ,
                            const float* shift_Q) const {
        for (int64_t key = 0; key < places.num_keys; ++key, scores_KQ += Columns * kLanes) {
            const uint8_t* const marks = marks_SC + static_cast<int64_t>(places.keys_K[key]) * num_marks;
            for (int64_t mark = 0; mark < num_marks; ++mark) {
                if (marks[mark] == 0) continue;
                float* const sum = row(kMarked + mark);
#pragma GCC unroll 4
                for (int c = 0; c < Columns; ++c) {
                    const vfloat p = exp2(load(scores_KQ + c * kLanes) - load(shift_Q + c * kLanes));
                    store(sum + c * kLanes, load(sum + c * kLanes) + p);
                }
            }
        }
    }

    // The sums over all keys, in registers.
    struct sums {
        const block_statistics& statistics;
        const block_places& places;
        vfloat best[Columns], surprise[Columns], distance[Columns], query[Columns];

        EE_INLINE explicit sums(const block_statistics& of, const block_places& block)
            : statistics(of), places(block) {
#pragma GCC unroll 4
            for (int c = 0; c < Columns; ++c) {
                best[c] = load(of.row(kBest) + c * kLanes);
                surprise[c] = load(of.row(kSurprise) + c * kLanes);
                distance[c] = load(of.row(kDistance) + c * kLanes);
                query[c] = load(block.queries_Q + c * kLanes);
            }
        }
        EE_INLINE void add(int64_t key, int c, vfloat score, vfloat shift, vfloat weight) {
            const vfloat place = broadcast(places.keys_K[key]);
            const vfloat away = as_float(as_word(place - query[c]) & 0x7fffffffu);
            distance[c] = distance[c] + weight * away;
            // Of a hidden key p is 0, and 0 times -inf would be NaN.
            surprise[c] = surprise[c] + weight * larger(score - shift, broadcast(-126.0f));
            best[c] = score == shift ? smaller(best[c], place) : best[c];
        }
        EE_INLINE void keep() const {
#pragma GCC unroll 4
            for (int c = 0; c < Columns; ++c) {
                store(statistics.row(kBest) + c * kLanes, best[c]);
                store(statistics.row(kSurprise) + c * kLanes, surprise[c]);
                store(statistics.row(kDistance) + c * kLanes, distance[c]);
            }
        }
    };
    EE_INLINE sums sums_of(const block_places& places) const { return sums(*this, places); }

    // Writes the values, `stride` apart, and the offsets, `offsets_stride` apart, of the queries.
    EE_TILE void write_out(const float* shift_Q, const float* l_Q, const float* queries_Q,
                           float* values, int64_t stride, int64_t* offsets,
                           int64_t offsets_stride) const {
        constexpr float kLn2 = 0.693147181f;
        for (int64_t i = 0; i < Columns * kLanes; i += kLanes) {
            for (int64_t n = kNear; n < kMarked; ++n) {
                store(row(n) + i, exp2(load(row(n) + i) - load(shift_Q + i)));
            }
        }
        for (int64_t query = 0; query < num_queries; ++query) {
            const float inverse = 1.0f / l_Q[query];
            values[0] = inverse;
            values[1] = __builtin_logf(l_Q[query]) - row(kSurprise)[query] * kLn2 * inverse;
            for (int64_t n = kDistance; n < kMarked + num_marks; ++n) {
                values[n] = row(n)[query] * inverse;
            }
            // No score equals a maximum that is NaN.
            const float best = row(kBest)[query], place = queries_Q[query];
            *offsets = best < __builtin_inff() ? static_cast<int64_t>(best - place) : 0;
            values += stride;
            offsets += offsets_stride;
        }
    }
};

}  // namespace EE_ISA
}  // namespace encoder_engine
