// The edges of a lattice, sums over its paths, and its best paths.
#include "text/unigram/paths/lattice.h"

#include <algorithm>
#include <cmath>

namespace encoder_engine {

void unigram_lattice::build(const unigram_model& model, const uint32_t* word, int64_t size) {
    const piece_trie& trie = model.trie();
    size_ = size;
    found_.clear();
    stops_.clear();
    starts_.clear();
    starts_.reserve_more(size + 2);
    for (int64_t i = 0; i < size + 2; ++i) starts_.push(0);
    const auto add = [&](int64_t from, int64_t stop, int32_t id, double score) {
        found_.append({score, static_cast<int32_t>(from), id});
        stops_.append(static_cast<int32_t>(stop));
        ++starts_[stop + 1];
    };
    for (int64_t from = 0; from < size; ++from) {
        int32_t place = piece_trie::first(trie.number_of(word[from]));
        if (trie.nodes()[place].score == piece_trie::kNoPiece) {
            add(from, from + 1, path_piece::kUnknown, model.unknown_score());
        }
        for (int64_t stop = from + 1; place >= 0; ++stop) {
            const double score = trie.nodes()[place].score;
            if (score != piece_trie::kNoPiece) add(from, stop, trie.id_of(place), score);
            if (stop == size) break;
            place = trie.child(place, trie.number_of(word[stop]));
        }
    }
    for (int64_t i = 1; i < size + 2; ++i) starts_[i] += starts_[i - 1];
    // Into the order of their stops: what stands in starts_ moves one stop on by it.
    edges_.clear();
    edges_.reserve_more(found_.size());
    edges_.extend(found_.size());
    for (int64_t i = 0; i < found_.size(); ++i) edges_[starts_[stops_[i]]++] = found_[i];
    for (int64_t i = size + 1; i > 0; --i) starts_[i] = starts_[i - 1];
    starts_[0] = 0;
}

void unigram_lattice::draw(double alpha, random_stream& random, pod_vector<path_piece>& out) {
    sums_.clear();
    sums_.reserve_more(size_ + 1);
    sums_.push(0.0);
    terms_.clear();
    terms_.reserve_more(edges_.size());
    for (int64_t stop = 1; stop <= size_; ++stop) {
        double most = -std::numeric_limits<double>::infinity();
        for (int64_t i = starts_[stop]; i < starts_[stop + 1]; ++i) {
            terms_.push(sums_[edges_[i].from] + alpha * edges_[i].score);
            most = std::max(most, terms_[i]);
        }
        double sum = 0.0;
        for (int64_t i = starts_[stop]; i < starts_[stop + 1]; ++i) sum += std::exp(terms_[i] - most);
        sums_.push(most + std::log(sum));
    }
    const int64_t first = out.size();
    for (int64_t stop = size_; stop > 0;) {
        double left = random.uniform();
        int64_t chosen = starts_[stop];
        // Rounding may leave a rest behind the last one.
        for (; chosen + 1 < starts_[stop + 1]; ++chosen) {
            left -= std::exp(terms_[chosen] - sums_[stop]);
            if (left < 0.0) break;
        }
        out.append({stop, edges_[chosen].id});
        stop = edges_[chosen].from;
    }
    std::reverse(out.data() + first, out.end());
}

bool unigram_lattice::ranks_after(const way& a, const way& b) const {
    if (a.score != b.score) return a.score < b.score;
    return a.edge != b.edge ? a.edge > b.edge : a.rank > b.rank;
}

void unigram_lattice::rank_at(int64_t stop, int64_t count) {
    const auto after = [this](const way& a, const way& b) { return ranks_after(a, b); };
    const auto make = [this](int64_t index, int64_t rank) {
        const edge& along = edges_[index];
        const double before = ranked_[first_[along.from] + rank].score;
        return way{along.score + before, static_cast<int32_t>(index), static_cast<int32_t>(rank)};
    };
    heap_.clear();
    for (int64_t i = starts_[stop]; i < starts_[stop + 1]; ++i) heap_.push_back(make(i, 0));
    std::make_heap(heap_.begin(), heap_.end(), after);
    for (int64_t i = 0; i < count && !heap_.empty(); ++i) {
        std::pop_heap(heap_.begin(), heap_.end(), after);
        const way best = heap_.back();
        heap_.pop_back();
        ranked_.append(best);
        if (best.rank + 1 < num_ranked(edges_[best.edge].from)) {
            heap_.push_back(make(best.edge, best.rank + 1));
            std::push_heap(heap_.begin(), heap_.end(), after);
        }
    }
}

bool unigram_lattice::rank(int64_t count, int64_t room) {
    ranked_.clear();
    first_.clear();
    first_.reserve_more(size_ + 2);
    first_.push(0);
    ranked_.append({0.0, -1, 0});
    first_.push(1);
    for (int64_t stop = 1; stop <= size_; ++stop) {
        if (ranked_.size() + count > room) return false;
        rank_at(stop, count);
        first_.push(ranked_.size());
    }
    return true;
}

void unigram_lattice::path(int64_t rank, pod_vector<path_piece>& out) const {
    const int64_t first = out.size();
    for (int64_t stop = size_; stop > 0;) {
        const way& last = ranked_[first_[stop] + rank];
        out.append({stop, edges_[last.edge].id});
        stop = edges_[last.edge].from;
        rank = last.rank;
    }
    std::reverse(out.data() + first, out.end());
}

}  // namespace encoder_engine
