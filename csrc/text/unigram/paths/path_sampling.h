// Subword regularization: encodes texts along paths drawn by chance, or along the n best.
#pragma once

#include <cstdint>
#include <vector>

#include "text/unigram/paths/path_chooser.h"
#include "text/unigram/paths/random_stream.h"
#include "text/sequence_encoder.h"
#include "text/unigram/paths/lattice.h"

namespace encoder_engine {

struct sampling_options {
    double alpha = 1.0;  // probabilities are in proportion to exp(alpha * score)
    int64_t nbest = 0;   // only the best so many paths of a text; 0: all paths
    uint64_t seed = 0;
};

// Draws the path of each word among all its paths.
class path_sampler : public path_chooser {
public:
    path_sampler(double alpha, random_stream& random) : alpha_(alpha), random_(random) {}
    void choose(const unigram_model& model, const uint32_t* word, int64_t size,
                pod_vector<path_piece>& out) override;
    int64_t max_word() const override { return kMaxWord; }

private:
    static constexpr int64_t kMaxWord = 1 << 19;
    double alpha_;
    random_stream& random_;
    unigram_lattice lattice_;
};

// Ranks the paths through a whole text, word by word; then returns the words' pieces on one path.
class path_ranker : public path_chooser {
public:
    explicit path_ranker(int64_t count) : count_(count) { scores_.append(0.0); }

    // On the first pass over the text, ranks a word's paths; after follow(), appends its pieces.
    void choose(const unigram_model& model, const uint32_t* word, int64_t size,
                pod_vector<path_piece>& out) override;
    // Whether the paths exceeded kMaxPlaces; then there are none.
    bool overflowed() const { return overflowed_; }
    // The number of paths found, at most the requested one. Scores are in descending order.
    int64_t num_paths() const { return scores_.size(); }
    double score(int64_t rank) const { return scores_[rank]; }
    // Selects the path that the second pass over the text follows.
    void follow(int64_t rank);

private:
    // The most ways and places to keep, about 16 bytes each.
    static constexpr int64_t kMaxPlaces = int64_t{1} << 26;

    // A path through the text so far: its rank in the text before the word, and among the word's
    // paths.
    struct step {
        int32_t before, path;
    };
    struct word_paths {
        int64_t first_path;  // in path_starts_
        int64_t first_step;  // by rank; -1 if the word has one path only
    };
    void merge(word_paths& word);
    int64_t num_places() const { return pieces_.size() + steps_.size() + path_starts_.size(); }

    int64_t count_;
    unigram_lattice lattice_;
    pod_vector<word_paths> words_;
    pod_vector<int64_t> path_starts_;  // of each word's paths, one after the other
    pod_vector<path_piece> pieces_;
    pod_vector<step> steps_;
    pod_vector<double> scores_, merged_;
    pod_vector<int64_t> chosen_;       // when following: by word, its path
    int64_t next_ = -1;                // ... and the next word
    bool overflowed_ = false;
};

// Encodes a text along paths drawn from the stream; everything else is as in encoder.encode().
status encode_sampled(const sequence_encoder& encoder, const text_view& text, int64_t limit,
                      const sampling_options& options, random_stream& random,
                      encoder_scratch& scratch, token_buffer& out);

// Encodes a text along each of its best paths, at most `count`. Their tokens follow one another and
// end at `ends`.
status encode_nbest(const sequence_encoder& encoder, const text_view& text, int64_t count,
                    encoder_scratch& scratch, token_buffer& out, std::vector<int64_t>& ends,
                    std::vector<double>& scores);

}  // namespace encoder_engine
