// All paths of pieces through one word: one drawn by its probability, or the best few in order.
#pragma once

#include <cstdint>
#include <vector>

#include "common/pod_vector.h"
#include "text/unigram/paths/random_stream.h"
#include "text/unigram/model.h"

namespace encoder_engine {

class unigram_lattice {
public:
    // Matches pieces at every character of a word. Where no piece is one character long, the
    // unknown piece matches that character.
    void build(const unigram_model& model, const uint32_t* word, int64_t size);
    // Appends a path with the probability exp(alpha * score) over the sum of it for all paths:
    // sums forward, choices backward (T. Kudo, "Subword Regularization", 2018).
    void draw(double alpha, random_stream& random, pod_vector<path_piece>& out);
    // Finds the best paths, at most `count`, within `room` places of memory. Between equal sums,
    // the path whose last pieces are longer comes first.
    bool rank(int64_t count, int64_t room);
    int64_t num_ranked() const { return num_ranked(size_); }
    double score(int64_t rank) const { return ranked_[first_[size_] + rank].score; }
    void path(int64_t rank, pod_vector<path_piece>& out) const;

private:
    // A piece between two characters of the word.
    struct edge {
        double score;
        int32_t from, id;
    };
    // A way to a character: along an edge, from the way of some rank to the character before.
    struct way {
        double score;
        int32_t edge, rank;
    };
    int64_t num_ranked(int64_t stop) const { return first_[stop + 1] - first_[stop]; }
    // Whether way `a` ranks after way `b` to the same character.
    bool ranks_after(const way& a, const way& b) const;
    void rank_at(int64_t stop, int64_t count);

    int64_t size_ = 0;
    pod_vector<edge> edges_;        // by where they stop, then by where they start
    pod_vector<int64_t> starts_;    // by stop: its first edge; and one entry more
    pod_vector<edge> found_;        // while building: by where they start
    pod_vector<int32_t> stops_;
    pod_vector<double> sums_;       // by character: of all paths to it, as logarithms
    pod_vector<double> terms_;
    pod_vector<way> ranked_;        // by character
    pod_vector<int64_t> first_;     // by character: its first way; and one entry more
    std::vector<way> heap_;
};

}  // namespace encoder_engine
