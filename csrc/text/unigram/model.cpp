// The trie of pieces, and Viterbi's search over it (T. Kudo, "Subword Regularization", 2018).
#include "text/unigram/model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/text_view.h"

namespace encoder_engine {
namespace {

// The pieces that can match, in ascending order.
struct sorted_pieces {
    static constexpr size_t kAhead = 12;
    std::vector<uint32_t> codes;  // of all of them, one after the other
    std::vector<piece_trie::piece> pieces;

    sorted_pieces(const vocabulary& from, const double* scores) {
        const token_list& tokens = from.tokens();
        codes.reserve(tokens.bytes().size());  // and so never moved
        pieces.reserve(from.num_distinct());
        // The order of UTF-8 is that of its characters.
        const std::vector<uint32_t> sorted = from.sorted();
        for (size_t i = 0; i < sorted.size(); ++i) {
            const uint32_t place = sorted[i];
            // The order jumps about in memory.
            if (i + kAhead < sorted.size()) __builtin_prefetch(tokens.text(sorted[i + kAhead]).data());
            const std::string_view text = tokens.text(place);
            if (text.empty()) continue;
            const size_t first = codes.size();
            const auto* at = reinterpret_cast<const uint8_t*>(text.data());
            const uint8_t* end = at + text.size();
            while (at < end) codes.push_back(read_utf8(at));
            pieces.push_back({codes.data() + first, codes.size() - first, tokens.id(place), scores[place]});
        }
    }
};

// A sum as it is kept.
template <score_rounding rounding>
double keep(double sum) {
    return rounding == score_rounding::wide ? sum : static_cast<double>(static_cast<float>(sum));
}

// From sums as large as this, SentencePiece begins anew.
constexpr double kMostSum = 100000.0;

}  // namespace

unigram_model::unigram_model(const vocabulary& pieces, const double* scores, const unigram_scoring& scoring)
    : trie_(sorted_pieces(pieces, scores).pieces) {
    numbers_ = {scoring.unknown_score, 1, scoring.rounding == score_rounding::narrow, 1, 1, {}};
    measure(pieces.tokens(), scoring.mark);
}

void unigram_model::measure(const token_list& pieces, uint32_t mark_code) {
    uint8_t bytes[4];
    const std::string mark(reinterpret_cast<char*>(bytes),
                           static_cast<size_t>(write_utf8(mark_code, bytes)));
    std::vector<uint8_t> units;
    for (size_t i = 0; i < pieces.size(); ++i) {
        const std::string_view text = pieces.text(i);
        const auto place = static_cast<size_t>(pieces.id(i));
        if (place >= units.size()) units.resize(place + 1);
        int64_t size = 0, astral = 0;
        for (const char c : text) {
            size += (c & 0xC0) != 0x80;
            astral += static_cast<uint8_t>(c) >= 0xF0;
        }
        units[place] = static_cast<uint8_t>(std::min<int64_t>(size + astral, kMaxUnits));
        numbers_.max_size = std::max(numbers_.max_size, size);
        const size_t last = text.rfind(mark);
        if (last == std::string_view::npos) continue;
        numbers_.cuts_before &= last == 0;
        numbers_.cuts_behind &= text.find(mark) + mark.size() == text.size();
    }
    piece_units_ = std::move(units);
}

int32_t unigram_model::find(const uint32_t* text, int64_t size) const {
    int32_t at = piece_trie::kNone;
    for (int64_t i = 0; i < size; ++i) {
        const uint32_t number = trie_.number_of(text[i]);
        if (number == 0) return path_piece::kUnknown;
        at = i == 0 ? piece_trie::first(number) : trie_.child(at, number);
        if (at < 0) return path_piece::kUnknown;
    }
    return at < 0 ? path_piece::kUnknown : trie_.id_of(at);
}

void path_search::start(double total) {
    points_.clear();
    points_.append({total, -1, path_piece::kUnknown});
    runners_up_.clear();
    anew_ = false;
    numbers_.clear();
    done_ = 0;
}

void path_search::advance(const unigram_model& model, const uint32_t* text, int64_t size,
                          bool ends) {
    const piece_trie& trie = model.trie();
    points_.reserve_more(size + 1 - points_.size());
    while (points_.size() <= size) {
        points_.push({piece_trie::kNoPiece, -1, path_piece::kUnknown});
    }
    if (model.rounding() == score_rounding::narrow) {
        runners_up_.reserve_more(size + 1 - runners_up_.size());
        while (runners_up_.size() <= size) runners_up_.push(piece_trie::kNoPiece);
    }
    numbers_.reserve_more(size - numbers_.size());
    uint32_t before = numbers_.empty() ? 0 : numbers_[numbers_.size() - 1];
    for (int64_t i = numbers_.size(); i < size; ++i) {
        const uint32_t number = trie.number_of(text[i]);
        // Where the pieces from the character before go on.
        __builtin_prefetch(trie.nodes() + trie.nodes()[before].base + number);
        numbers_.push(number);
        before = number;
    }
    if (model.rounding() == score_rounding::wide) {
        advance_as<score_rounding::wide>(model, size, ends);
    } else {
        advance_as<score_rounding::narrow>(model, size, ends);
    }
}

template <score_rounding rounding>
void path_search::advance_as(const unigram_model& model, int64_t size, bool ends) {
    // Pieces from later characters could reach beyond what is there.
    const int64_t end = ends ? size : size - model.max_size() + 1;
    while (done_ < end) {
        const int count = static_cast<int>(std::min<int64_t>(kBlock, end - done_));
        follow(model.trie(), numbers_.data() + done_, count, size - done_);
        relax<rounding>(model, done_, count);
        done_ += count;
    }
}

// Each step of a walk waits for memory, but walks from different starts wait at the same time.
void path_search::follow(const piece_trie& trie, const uint32_t* numbers, int count, int64_t left) {
    const piece_trie::node* nodes = trie.nodes();
    places_.clear();
    places_.reserve_more(kBlock);
    int32_t* places = places_.data();
    int32_t starts[kBlock];  // that go on
    for (int i = 0; i < count; ++i) {
        places[i] = piece_trie::first(numbers[i]);
        lengths_[i] = 1;
        starts[i] = i;
    }
    for (int length = 1, open = count; open > 0; ++length) {
        while (open > 0 && starts[open - 1] + length >= left) --open;
        places_.extend(kBlock);
        places_.reserve_more(kBlock);
        places = places_.end();
        const int32_t* before = places - kBlock;
        int going_on = 0;
        for (int k = 0; k < open; ++k) {
            const int32_t start = starts[k];
            const int32_t next = nodes[before[start]].base + static_cast<int32_t>(numbers[start + length]);
            const int32_t found = nodes[next].parent == before[start];
            places[start] = next;
            lengths_[start] += found;
            starts[going_on] = start;
            going_on += found;
        }
        open = going_on;
    }
}

template <score_rounding rounding>
void path_search::relax(const unigram_model& model, int64_t first, int count) {
    const piece_trie::node* nodes = model.trie().nodes();
    point* points = points_.data() + first;
    for (int start = 0; start < count; ++start) {
        double here = points[start].score;
        if (rounding == score_rounding::narrow && std::abs(here) > kMostSum) {
            here = begin_sums_anew(first + start);
        }
        const auto reach = [&](int stop, double exact, int32_t piece) {
            const double sum = keep<rounding>(exact);
            double passed = sum;
            if (sum > points[stop].score) {
                passed = points[stop].score;
                points[stop] = {sum, static_cast<int32_t>(first + start), piece};
            }
            if (rounding == score_rounding::narrow) {
                double& runner_up = runners_up_[first + stop];
                runner_up = std::max(runner_up, passed);
            }
        };
        const int32_t* place = places_.data() + start;
        const double single = nodes[*place].score;
        if (single != piece_trie::kNoPiece) {
            reach(start + 1, single + here, *place);
        } else {
            reach(start + 1, model.unknown_score() + here, path_piece::kUnknown);
        }
        for (int length = 2; length <= lengths_[start]; ++length) {
            place += kBlock;
            reach(start + length, nodes[*place].score + here, *place);
        }
    }
}

// Takes the sum of a place off all that are known from there on.
double path_search::begin_sums_anew(int64_t place) {
    const auto sum = static_cast<float>(points_[place].score);
    for (int64_t i = place; i < points_.size(); ++i) {
        double& score = points_[i].score;
        if (score != piece_trie::kNoPiece) score = static_cast<double>(static_cast<float>(score) - sum);
    }
    anew_ = true;
    return 0.0;
}

double path_search::margin(int64_t place) const {
    double least = anew_ ? 0.0 : std::numeric_limits<double>::infinity();
    for (int64_t at = place; at > 0; at = points_[at].from) {
        least = std::min(least, points_[at].score - runners_up_[at]);
    }
    return least;
}

int64_t path_search::find_settled() {
    // Points from done_ on that are reached; whatever follows goes through one of them.
    const int64_t size = points_.size();
    open_.clear();
    open_.reserve_more(size);
    open_.extend(size);
    uint8_t* const open = open_.data();
    std::fill(open, open + size, uint8_t{0});
    int64_t num_open = 0;
    for (int64_t i = done_; i < size; ++i) {
        open[i] = points_[i].score != piece_trie::kNoPiece;
        num_open += open[i];
    }
    if (num_open == 0) return 0;
    // From behind, each gives way to the one that it came from, until they have met.
    int64_t last = size - 1;
    for (;; --last) {
        if (!open[last]) continue;
        if (num_open == 1) return last;
        const int32_t from = points_[last].from;
        num_open -= open[from];
        open[from] = 1;
    }
}

void path_search::trace(const unigram_model& model, int64_t stop,
                        pod_vector<path_piece>& out) const {
    const int64_t first = out.size();
    for (int64_t at = stop; at > 0; at = points_[at].from) {
        const int32_t place = points_[at].piece;
        out.append({at, place < 0 ? path_piece::kUnknown : model.trie().id_of(place)});
    }
    std::reverse(out.data() + first, out.data() + out.size());
}

void path_search::forget(int64_t count) {
    points_.drop_front(count);
    if (!runners_up_.empty()) runners_up_.drop_front(count);
    numbers_.drop_front(count);
    for (int64_t i = 0; i < points_.size(); ++i) {
        point& p = points_[i];
        p.from -= static_cast<int32_t>(count);
        // Where not all paths went through the first character that stays, others have no beginning.
        if (i > 0 && p.from < 0) p = {piece_trie::kNoPiece, -1, path_piece::kUnknown};
    }
    done_ -= count;
}

}  // namespace encoder_engine
