// Shares nothing with the encoder but the normalizers, which run over the whole text at once here.
#include "fuzz/slow_unigram.h"

#include <algorithm>
#include <limits>

#include "text/text_view.h"
#include "text/unicode_tables.h"

namespace encoder_engine {
namespace {

std::string to_utf8(const std::vector<uint32_t>& codes, size_t first, size_t last) {
    std::string out;
    for (size_t i = first; i < last; ++i) {
        uint8_t bytes[4];
        const int size = write_utf8(codes[i], bytes);
        out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    }
    return out;
}

}  // namespace

slow_unigram::slow_unigram(const unigram_pieces& pieces, const unigram_options& options)
    : normalizer_(options.steps), splitting_(options.splitting), ids_(options.ids),
      unknown_score_(pieces.unknown_score) {
    for (const unigram_pieces::piece& piece : pieces.pieces) {
        pieces_[piece.text] = {piece.id, piece.score};
        longest_ = std::max(longest_, piece.text.size());
    }
}

// White space goes; of what stands between, a word begins at every mark.
std::vector<std::vector<uint32_t>> slow_unigram::split(const std::vector<uint32_t>& text) const {
    std::vector<std::vector<uint32_t>> parts(1);
    for (const uint32_t code : text) {
        if (splitting_.white_space && (unicode_properties(code) & kUnicodeWhitespace) != 0) {
            parts.emplace_back();
        } else {
            parts.back().push_back(code);
        }
    }
    if (!splitting_.metaspace) return parts;
    std::vector<std::vector<uint32_t>> words;
    for (std::vector<uint32_t>& part : parts) {
        if (part.empty()) continue;
        for (uint32_t& code : part) code = code == ' ' ? splitting_.mark : code;
        if (splitting_.scheme == prepend_scheme::always && part.front() != splitting_.mark) {
            part.insert(part.begin(), splitting_.mark);
        }
        words.emplace_back();
        for (const uint32_t code : part) {
            if (splitting_.split && code == splitting_.mark && !words.back().empty()) {
                words.emplace_back();
            }
            words.back().push_back(code);
        }
    }
    return words;
}

// Viterbi over characters: of equal sums the one that was found first stays.
void slow_unigram::best_path(const std::vector<uint32_t>& word, std::vector<int32_t>& ids) const {
    struct point {
        double score = -std::numeric_limits<double>::infinity();
        size_t from = 0;
        int32_t id = path_piece::kUnknown;
        bool reached = false;
    };
    std::vector<point> points(word.size() + 1);
    points[0].score = 0.0;
    points[0].reached = true;
    const auto offer = [&](size_t from, size_t to, int32_t id, double score) {
        point& at = points[to];
        if (at.reached && !(score > at.score)) return;
        at = {score, from, id, true};
    };
    for (size_t from = 0; from < word.size(); ++from) {
        bool single = false;
        const size_t most = std::min(word.size(), from + longest_);
        for (size_t to = from + 1; to <= most; ++to) {
            const auto found = pieces_.find(to_utf8(word, from, to));
            if (found == pieces_.end()) continue;
            single |= to == from + 1;
            offer(from, to, found->second.id, points[from].score + found->second.score);
        }
        if (!single) {
            offer(from, from + 1, path_piece::kUnknown, points[from].score + unknown_score_);
        }
    }
    std::vector<size_t> ends;
    for (size_t at = word.size(); at > 0; at = points[at].from) ends.push_back(at);
    std::string unknown;
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
        const point& at = points[*end];
        if (at.id == path_piece::kUnknown || at.id == ids_.unknown) {
            unknown += to_utf8(word, at.from, *end);
            continue;
        }
        close_unknown(unknown, ids);
        ids.push_back(at.id);
    }
    close_unknown(unknown, ids);
}

// Unknown characters in a row are one token, or all of their bytes.
void slow_unigram::close_unknown(std::string& bytes, std::vector<int32_t>& ids) const {
    if (bytes.empty()) return;
    const auto known = pieces_.find(bytes);
    bool spelled = !ids_.bytes.empty();
    for (const char byte : bytes) {
        spelled = spelled && ids_.bytes[static_cast<uint8_t>(byte)] >= 0;
    }
    if (known != pieces_.end()) {
        ids.push_back(known->second.id);
    } else if (spelled) {
        for (const char byte : bytes) ids.push_back(ids_.bytes[static_cast<uint8_t>(byte)]);
    } else {
        ids.push_back(ids_.unknown);
    }
    bytes.clear();
}

std::vector<int32_t> slow_unigram::encode(const std::vector<uint32_t>& text) const {
    const text_view view{text.data(), static_cast<int64_t>(text.size()), char_width::four};
    std::vector<uint32_t> normal;
    normalize_unigram(view, normalizer_, normal);
    std::vector<int32_t> ids;
    for (const std::vector<uint32_t>& word : split(normal)) best_path(word, ids);
    return ids;
}

}  // namespace encoder_engine
