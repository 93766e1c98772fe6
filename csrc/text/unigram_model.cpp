// The trie of pieces, and Viterbi's search over it (T. Kudo, "Subword Regularization", 2018).
#include "text/unigram_model.h"

#include <algorithm>
#include <map>

#include "text/trie.h"

namespace encoder_engine {
namespace {

int character_size(uint8_t lead) { return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4; }

// A sum as it is kept.
template <score_rounding rounding>
double keep(double sum) {
    return rounding == score_rounding::wide ? sum : static_cast<double>(static_cast<float>(sum));
}

template <score_rounding rounding>
double add_unknown(double unknown, double here) {
    if (rounding == score_rounding::wide) return unknown + here;
    return static_cast<double>(static_cast<float>(unknown) + static_cast<float>(here));
}

}  // namespace

unigram_model::unigram_model(const unigram_pieces& pieces)
    : unknown_score_(pieces.unknown_score), rounding_(pieces.rounding) {
    std::vector<std::pair<std::string, int32_t>> keys;  // with places in `pieces`
    keys.reserve(pieces.pieces.size());
    for (size_t i = 0; i < pieces.pieces.size(); ++i) {
        if (pieces.pieces[i].text.empty()) continue;
        keys.emplace_back(pieces.pieces[i].text, static_cast<int32_t>(i));
    }
    std::sort(keys.begin(), keys.end());
    // Of equal texts the last place stays.
    size_t size = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
        if (size > 0 && keys[size - 1].first == keys[i].first) {
            keys[size - 1].second = keys[i].second;
        } else {
            if (size != i) keys[size] = std::move(keys[i]);
            ++size;
        }
    }
    keys.resize(size);
    for (const auto& key : keys) {
        max_size_ = std::max(max_size_, static_cast<int64_t>(key.first.size()));
    }
    double_array_trie trie;
    trie.build(keys);
    nodes_.resize(static_cast<size_t>(trie.num_nodes()));
    ids_.assign(nodes_.size(), path_piece::kUnknown);
    for (int32_t i = 0; i < trie.num_nodes(); ++i) {
        const int32_t place = trie.value(i);
        node& n = nodes_[static_cast<size_t>(i)];
        n = {trie.base(i), trie.parent(i), kNoPiece};
        if (place < 0) continue;
        n.score = pieces.pieces[static_cast<size_t>(place)].score;
        ids_[static_cast<size_t>(i)] = pieces.pieces[static_cast<size_t>(place)].id;
    }
}

int32_t unigram_model::find(const uint8_t* text, int64_t size) const {
    int32_t at = kRoot;
    for (int64_t i = 0; i < size; ++i) {
        const int32_t next = nodes_[static_cast<size_t>(at)].base ^ text[i];
        if (nodes_[static_cast<size_t>(next)].parent != at) return path_piece::kUnknown;
        at = next;
    }
    return ids_[static_cast<size_t>(at)];
}

void path_search::start() {
    points_.clear();
    points_.append({0.0, -1, path_piece::kUnknown});
    done_ = 0;
}

void path_search::advance(const unigram_model& model, const uint8_t* text, int64_t size, bool ends) {
    points_.reserve_more(size + 1 - points_.size());
    while (points_.size() <= size) {
        points_.push({unigram_model::kNoPiece, -1, path_piece::kUnknown});
    }
    if (model.rounding() == score_rounding::wide) {
        advance_as<score_rounding::wide>(model, text, size, ends);
    } else {
        advance_as<score_rounding::narrow>(model, text, size, ends);
    }
}

template <score_rounding rounding>
void path_search::advance_as(const unigram_model& model, const uint8_t* text, int64_t size,
                             bool ends) {
    const unigram_model::node* nodes = model.nodes();
    point* points = points_.data();
    // Pieces from later bytes could reach beyond what is there.
    const int64_t end = ends ? size : size - model.max_size() + 1;
    int64_t at = done_;
    while (at < end) {
        const double here = points[at].score;
        const int length = character_size(text[at]);
        const int64_t next_character = at + length;
        int32_t place = unigram_model::kRoot;
        bool single = false;
        for (int64_t i = at; i < size;) {
            const int32_t next = nodes[place].base ^ text[i];
            if (nodes[next].parent != place) break;
            place = next;
            ++i;
            const double score = nodes[place].score;
            const double sum = score + here;
            if (sum > points[i].score) {
                points[i] = {keep<rounding>(sum), static_cast<int32_t>(at), place};
            }
            single |= i == next_character && score != unigram_model::kNoPiece;
        }
        if (!single) {
            const double sum = add_unknown<rounding>(model.unknown_score(), here);
            if (sum > points[next_character].score) {
                points[next_character] = {sum, static_cast<int32_t>(at), path_piece::kUnknown};
            }
        }
        at = next_character;
    }
    done_ = at;
}

int64_t path_search::find_settled() {
    // Points from done_ on that are reached; whatever follows goes through one of them.
    std::map<int64_t, bool> open;
    for (int64_t i = done_; i < points_.size(); ++i) {
        if (points_[i].score != unigram_model::kNoPiece) open[i] = true;
    }
    while (open.size() > 1) {
        const auto last = std::prev(open.end());
        const int64_t from = points_[last->first].from;
        open.erase(last);
        open[from] = true;
    }
    return open.empty() ? 0 : open.begin()->first;
}

int64_t path_search::best_end() const {
    int64_t best = done_;
    while (best < points_.size() && points_[best].score == unigram_model::kNoPiece) ++best;
    return best;
}

void path_search::trace(const unigram_model& model, int64_t stop,
                        pod_vector<path_piece>& out) const {
    const int64_t first = out.size();
    for (int64_t at = stop; at > 0; at = points_[at].from) {
        const int32_t place = points_[at].piece;
        out.append({at, place < 0 ? path_piece::kUnknown : model.id_of(place)});
    }
    std::reverse(out.data() + first, out.data() + out.size());
}

void path_search::forget(int64_t count) {
    points_.drop_front(count);
    for (int64_t i = 0; i < points_.size(); ++i) {
        points_[i].from -= static_cast<int32_t>(count);
    }
    done_ -= count;
}

}  // namespace encoder_engine
