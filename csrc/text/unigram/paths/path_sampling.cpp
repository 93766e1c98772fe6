// Choosers of paths, and the readings of a text that they take part in.
#include "text/unigram/paths/path_sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace encoder_engine {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// Lets a chooser take part for as long as this lives.
class chooser_lease {
public:
    chooser_lease(encoder_scratch& scratch, path_chooser& chooser) : scratch_(scratch) {
        scratch_.choose_by(&chooser);
    }
    chooser_lease(const chooser_lease&) = delete;
    chooser_lease& operator=(const chooser_lease&) = delete;
    ~chooser_lease() { scratch_.choose_by(nullptr); }

private:
    encoder_scratch& scratch_;
};

// Reads a text to rank its paths; what it appends of other tokens is dropped.
status rank_text(const sequence_encoder& encoder, const text_view& text, int64_t count,
                 path_ranker& ranker, encoder_scratch& scratch, token_buffer& out) {
    const int64_t size = out.size();
    const status result = encoder.encode(text, kNoLimit, scratch, out);
    out.truncate(size);
    if (result.ok() && ranker.overflowed()) {
        return {error_code::too_many_paths, -1, count, false};
    }
    return result;
}

// Draws a rank by the scores.
int64_t draw_rank(const path_ranker& ranker, double alpha, double uniform) {
    const auto weight = [&](int64_t rank) {
        return std::exp(alpha * (ranker.score(rank) - ranker.score(0)));
    };
    double sum = 0.0;
    for (int64_t i = 0; i < ranker.num_paths(); ++i) sum += weight(i);
    double left = uniform * sum;
    for (int64_t i = 0; i + 1 < ranker.num_paths(); ++i) {
        left -= weight(i);
        if (left < 0.0) return i;
    }
    return ranker.num_paths() - 1;
}

}  // namespace

void path_sampler::choose(const unigram_model& model, const uint32_t* word, int64_t size,
                          pod_vector<path_piece>& out) {
    lattice_.build(model, word, size);
    lattice_.draw(alpha_, random_, out);
}

void path_ranker::choose(const unigram_model& model, const uint32_t* word, int64_t size,
                         pod_vector<path_piece>& out) {
    if (next_ >= 0) {
        const int64_t path = words_[next_].first_path + chosen_[next_];
        ++next_;
        const int64_t start = path_starts_[path];
        out.append(pieces_.data() + start, path_starts_[path + 1] - start);
        return;
    }
    overflowed_ |= num_places() + 4 * size > kMaxPlaces;
    if (overflowed_) return;
    lattice_.build(model, word, size);
    overflowed_ |= !lattice_.rank(count_, kMaxPlaces - num_places());
    if (overflowed_) return;
    if (path_starts_.empty()) path_starts_.append(0);
    word_paths paths{path_starts_.size() - 1, -1};
    merge(paths);
    words_.append(paths);
}

// Sums of one path before and one through the word, the greatest first.
void path_ranker::merge(word_paths& word) {
    const int64_t num_before = scores_.size(), num_here = lattice_.num_ranked();
    for (int64_t i = 0; i < num_here; ++i) {
        lattice_.path(i, pieces_);
        path_starts_.append(pieces_.size());
    }
    if (num_here == 1) {
        for (int64_t i = 0; i < num_before; ++i) scores_[i] += lattice_.score(0);
        return;
    }
    struct sum {
        double score;
        step made_of;
    };
    const auto after = [](const sum& a, const sum& b) {
        if (a.score != b.score) return a.score < b.score;
        if (a.made_of.before != b.made_of.before) return a.made_of.before > b.made_of.before;
        return a.made_of.path > b.made_of.path;
    };
    std::vector<sum> heap;
    const auto add = [&](int64_t before, int64_t path) {
        if (before >= num_before || path >= num_here) return;
        heap.push_back({scores_[before] + lattice_.score(path),
                        {static_cast<int32_t>(before), static_cast<int32_t>(path)}});
        std::push_heap(heap.begin(), heap.end(), after);
    };
    word.first_step = steps_.size();
    merged_.clear();
    add(0, 0);
    while (merged_.size() < count_ && !heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), after);
        const sum best = heap.back();
        heap.pop_back();
        merged_.append(best.score);
        steps_.append(best.made_of);
        // Each pair comes from one other only.
        if (best.made_of.path == 0) add(best.made_of.before + 1, 0);
        add(best.made_of.before, best.made_of.path + 1);
    }
    scores_.swap(merged_);
}

void path_ranker::follow(int64_t rank) {
    chosen_.clear();
    chosen_.reserve_more(words_.size());
    chosen_.extend(words_.size());
    for (int64_t i = words_.size() - 1; i >= 0; --i) {
        chosen_[i] = 0;
        if (words_[i].first_step < 0) continue;
        const step& made_of = steps_[words_[i].first_step + rank];
        chosen_[i] = made_of.path;
        rank = made_of.before;
    }
    next_ = 0;
}

status encode_sampled(const sequence_encoder& encoder, const text_view& text, int64_t limit,
                      const sampling_options& options, random_stream& random,
                      encoder_scratch& scratch, token_buffer& out) {
    if (options.nbest == 0) {
        path_sampler sampler(options.alpha, random);
        const chooser_lease lease(scratch, sampler);
        return encoder.encode(text, limit, scratch, out);
    }
    path_ranker ranker(options.nbest);
    const chooser_lease lease(scratch, ranker);
    const status result = rank_text(encoder, text, options.nbest, ranker, scratch, out);
    if (!result.ok()) return result;
    ranker.follow(draw_rank(ranker, options.alpha, random.uniform()));
    return encoder.encode(text, limit, scratch, out);
}

status encode_nbest(const sequence_encoder& encoder, const text_view& text, int64_t count,
                    encoder_scratch& scratch, token_buffer& out, std::vector<int64_t>& ends,
                    std::vector<double>& scores) {
    path_ranker ranker(count);
    const chooser_lease lease(scratch, ranker);
    status result = rank_text(encoder, text, count, ranker, scratch, out);
    for (int64_t i = 0; i < ranker.num_paths() && result.ok(); ++i) {
        ranker.follow(i);
        result = encoder.encode(text, kNoLimit, scratch, out);
        ends.push_back(out.size());
        scores.push_back(ranker.score(i));
    }
    return result;
}

}  // namespace encoder_engine
