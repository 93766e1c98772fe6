// Viterbi over the characters of a whole text, piece by piece out of a hash table.
#include "fuzz/twins/slow_token.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/text_view.h"

namespace encoder_engine {

std::string to_utf8(uint32_t code) {
    uint8_t bytes[4];
    const int size = write_utf8(code, bytes);
    return {reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)};
}

std::vector<uint32_t> from_utf8(const std::string& text) {
    std::vector<uint32_t> out;
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* end = at + text.size();
    while (at < end) out.push_back(read_utf8(at));
    return out;
}

slow_model::slow_model(const unigram_pieces& pieces)
    : unknown_score_(pieces.unknown_score), narrow_(pieces.rounding == score_rounding::narrow) {
    for (const unigram_pieces::piece& piece : pieces.pieces) {
        pieces_[piece.text] = {piece.id, piece.score};
        longest_ = std::max(longest_, from_utf8(piece.text).size());
    }
}

int32_t slow_model::find(const std::string& piece) const {
    const auto found = pieces_.find(piece);
    return found == pieces_.end() ? path_piece::kUnknown : found->second.id;
}

std::vector<path_piece> slow_model::best_path(const std::vector<uint32_t>& text) const {
    struct point {
        double score = -std::numeric_limits<double>::infinity();
        size_t from = 0;
        int32_t id = path_piece::kUnknown;
    };
    std::vector<point> points(text.size() + 1);
    points[0].score = 0.0;
    const auto rounded = [this](double sum) { return narrow_ ? static_cast<float>(sum) : sum; };
    for (size_t from = 0; from < text.size(); ++from) {
        const double before = points[from].score;
        for (size_t to = from; narrow_ && std::abs(before) > 100000.0 && to <= text.size(); ++to) {
            points[to].score = rounded(points[to].score - before);
        }
        const auto offer = [&](size_t to, int32_t id, double score) {
            const double sum = rounded(points[from].score + score);
            if (sum > points[to].score) points[to] = {sum, from, id};
        };
        bool single = false;
        std::string piece;
        const size_t most = std::min(text.size(), from + longest_);
        for (size_t to = from + 1; to <= most; ++to) {
            piece += to_utf8(text[to - 1]);
            const auto found = pieces_.find(piece);
            if (found == pieces_.end()) continue;
            single |= to == from + 1;
            offer(to, found->second.id, found->second.score);
        }
        if (!single) offer(from + 1, path_piece::kUnknown, unknown_score_);
    }
    std::vector<path_piece> path;
    for (size_t at = text.size(); at > 0; at = points[at].from) {
        path.push_back({static_cast<int64_t>(at), points[at].id});
    }
    std::reverse(path.begin(), path.end());
    return path;
}

}  // namespace encoder_engine
