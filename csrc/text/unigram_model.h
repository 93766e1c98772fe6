// The Unigram model: the path of pieces through a text whose scores have the greatest sum.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "common/pod_vector.h"

namespace encoder_engine {

// How sums are rounded: the library adds in double; SentencePiece keeps sums in float, but compares
// a candidate before it is rounded.
enum class score_rounding : uint8_t { wide, narrow };

struct unigram_pieces {
    struct piece {
        std::string text;  // UTF-8; of two alike the last counts, empty ones match nothing
        int32_t id;
        double score;
    };
    std::vector<piece> pieces;
    double unknown_score = 0.0;
    score_rounding rounding = score_rounding::wide;
};

// A piece of a path: the bytes up to `stop`, from where the one before stops.
struct path_piece {
    static constexpr int32_t kUnknown = -1;
    int64_t stop;
    int32_t id;
};

class unigram_model {
public:
    explicit unigram_model(const unigram_pieces& pieces);

    // The id of the piece that is exactly this text, or kUnknown.
    int32_t find(const uint8_t* text, int64_t size) const;
    // Bytes of the longest piece; at least those of a character.
    int64_t max_size() const { return max_size_; }
    double unknown_score() const { return unknown_score_; }
    score_rounding rounding() const { return rounding_; }
    int64_t num_bytes() const { return static_cast<int64_t>(nodes_.size() * (sizeof(node) + 4)); }

    // A node of the trie with the score of the piece that ends there. Children lie at base ^ byte.
    struct node {
        int32_t base;
        int32_t parent;
        double score;
    };
    static constexpr double kNoPiece = -std::numeric_limits<double>::infinity();
    static constexpr int32_t kRoot = 0;
    const node* nodes() const { return nodes_.data(); }
    int32_t id_of(int32_t place) const { return ids_[static_cast<size_t>(place)]; }

private:
    std::vector<node> nodes_;
    std::vector<int32_t> ids_;  // by node
    int64_t max_size_ = 4;
    double unknown_score_;
    score_rounding rounding_;
};

// Finds the best path through a text that may grow while the search goes on.
class path_search {
public:
    // Begins at the start of a text.
    void start();
    // Goes on through text[0, size), the text so far. Unless it ends there, the last pieces are left
    // open.
    void advance(const unigram_model& model, const uint8_t* text, int64_t size, bool ends);
    // How far every path that may still be best is the same, as far as can be told.
    int64_t find_settled();
    // The end of the best way to have gone on to the last byte but a few.
    int64_t best_end() const;
    // Appends the pieces up to `stop`, which a path must reach.
    void trace(const unigram_model& model, int64_t stop, pod_vector<path_piece>& out) const;
    // Forgets the first bytes, which a path must reach; the text begins behind them from now on.
    void forget(int64_t count);
    int64_t num_bytes() const { return points_.capacity() * static_cast<int64_t>(sizeof(point)); }

private:
    // The best way to a byte of the text.
    struct point {
        double score;
        int32_t from;
        int32_t piece;  // node of the trie, or kUnknown
    };
    template <score_rounding rounding>
    void advance_as(const unigram_model& model, const uint8_t* text, int64_t size, bool ends);

    pod_vector<point> points_;
    int64_t done_ = 0;  // pieces from all bytes before have been tried
};

}  // namespace encoder_engine
