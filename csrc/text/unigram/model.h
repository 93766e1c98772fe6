// The Unigram model: finds the path of pieces through a text with the greatest sum of scores.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/pod_vector.h"
#include "text/unigram/piece_trie.h"
#include "text/vocabulary.h"

namespace encoder_engine {

// How sums are rounded: the library adds in double, SentencePiece in float.
enum class score_rounding : uint8_t { wide, narrow };

struct unigram_scoring {
    double unknown_score = 0.0;
    score_rounding rounding = score_rounding::wide;
    uint32_t mark = 0x2581;  // what stands for a space in pieces
};

// A piece of a path: the characters from the end of the piece before, up to `stop`.
struct path_piece {
    static constexpr int32_t kUnknown = -1;
    int64_t stop;
    int32_t id;
};

class unigram_model {
public:
    // `scores` are in the order of the pieces. Of equal pieces the last counts; empty ones never
    // match.
    unigram_model(const vocabulary& pieces, const double* scores, const unigram_scoring& scoring);

    // The id of the piece that is exactly this text, or kUnknown.
    int32_t find(const uint32_t* text, int64_t size) const;
    // Characters of the longest piece.
    int64_t max_size() const { return numbers_.max_size; }
    double unknown_score() const { return numbers_.unknown_score; }
    score_rounding rounding() const {
        return numbers_.narrow != 0 ? score_rounding::narrow : score_rounding::wide;
    }
    // Whether no piece reaches across a mark: none holds a mark but as its first character
    // (before), or as its last (behind). A word can then be matched by itself.
    bool cuts_before() const { return numbers_.cuts_before != 0; }
    bool cuts_behind() const { return numbers_.cuts_behind != 0; }
    // One more than the largest id of a piece.
    int64_t num_ids() const { return piece_units_.size(); }
    // The size of a piece in 16-bit units, where it is at most kMaxUnits.
    int64_t piece_units(int32_t id) const { return piece_units_[static_cast<size_t>(id)]; }
    static constexpr int64_t kMaxUnits = 255;
    const piece_trie& trie() const { return trie_; }

private:
    struct numbers {
        double unknown_score;
        int64_t max_size;
        uint8_t narrow, cuts_before, cuts_behind, unused[5];
    };

    void measure(const token_list& pieces, uint32_t mark);

    piece_trie trie_;
    std::vector<uint8_t> piece_units_;  // by id
    numbers numbers_{};
};

// Finds the best path through a text that may grow while the search goes on.
class path_search {
public:
    // Begins at the start of a text, or where the sum of the scores before is `total`.
    void start(double total = 0.0);
    // Continues through text[0, size), the text so far. Unless `ends`, more text may follow.
    void advance(const unigram_model& model, const uint32_t* text, int64_t size, bool ends);
    // Returns how far all paths that may still win agree, as far as that is known.
    int64_t find_settled();
    // The place before which pieces from every character have been tried.
    int64_t done() const { return done_; }
    // Appends the path's pieces up to `stop`, which must be on every path that may still win.
    void trace(const unigram_model& model, int64_t stop, pod_vector<path_piece>& out) const;
    // Drops the first `count` characters; every path that may still win must pass their end.
    void forget(int64_t count);
    // The sum of the best path to a place.
    double score_at(int64_t place) const { return points_[place].score; }
    // With narrow sums: by how much the best path to a place beats every other one. None if sums
    // restarted on the way.
    double margin(int64_t place) const;
    int64_t num_bytes() const {
        return 8 * runners_up_.capacity() + points_.capacity() * static_cast<int64_t>(sizeof(point)) +
               open_.capacity() + 4 * (numbers_.capacity() + places_.capacity());
    }

private:
    // The best way to a character of the text.
    struct point {
        double score;
        int32_t from;
        int32_t piece;  // node of the trie, or kUnknown
    };
    // Start characters whose pieces are matched side by side.
    static constexpr int kBlock = 64;
    template <score_rounding rounding>
    void advance_as(const unigram_model& model, int64_t size, bool ends);
    void follow(const piece_trie& trie, const uint32_t* numbers, int count, int64_t left);
    template <score_rounding rounding>
    void relax(const unigram_model& model, int64_t first, int count);
    double begin_sums_anew(int64_t place);

    pod_vector<point> points_;
    pod_vector<double> runners_up_;  // with narrow sums, per point: the sum of the way next to the best
    bool anew_ = false;
    pod_vector<uint8_t> open_;      // flags of find_settled
    pod_vector<int32_t> places_;    // the node of each length and start of a block
    int32_t lengths_[kBlock];       // of its starts: up to which length there are nodes
    pod_vector<uint32_t> numbers_;  // of the characters, as the trie has them
    int64_t done_ = 0;              // pieces from all characters before have been tried
};

}  // namespace encoder_engine
