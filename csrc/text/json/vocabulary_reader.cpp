// Walks the members of the file and of its model, and reads the pieces in one pass.
#include "text/json/vocabulary_reader.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "text/json/json_cursor.h"

namespace encoder_engine {
namespace {

// The bytes of the shortest entry of a vocabulary: ["",0],
constexpr size_t kLeastEntry = 5;

// Goes to the next member of an object behind its brace or a value; false at the end, and where there
// is neither a member nor an end.
bool next_member(json_cursor& at, bool first, std::string_view& key) {
    at.skip_space();
    if (!first && !at.take(',')) return false;
    at.skip_space();
    return at.skip_string(key) && at.take(':');
}

// {"piece": id, ...}, the brace taken. Ids that do not ascend are the exact reader's business.
bool read_object(json_cursor& at, token_list& tokens) {
    int32_t last = -1;
    do {
        int32_t id = 0;
        if (!at.read_string(tokens.open_text()) || !at.take(':') || !at.read_id(kMaxJsonId, id) || id <= last) {
            return false;
        }
        tokens.end_text(id);
        last = id;
    } while (at.take(','));
    return at.take('}');
}

// [["piece", score], ...], the bracket taken.
bool read_array(json_cursor& at, token_list& tokens, std::vector<double>& scores) {
    do {
        double score = 0.0;
        if (tokens.size() > size_t{kMaxJsonId} || !at.take('[') || !at.read_string(tokens.open_text()) ||
            !at.take(',') || !at.read_score(score) || !at.take(']')) {
            return false;
        }
        tokens.end_text(static_cast<int32_t>(tokens.size()));
        scores.push_back(score);
    } while (at.take(','));
    return at.take(']');
}

// Reads the value of model.vocab. `type` is that of the model, nothing if it comes later or never.
bool read_value(json_cursor& at, std::string_view type, json_vocabulary& out) {
    at.skip_space();
    out.begin = at.place();
    const bool object = at.take('{');
    if (!object && !at.take('[')) return false;
    const bool fits = object ? type == "WordPiece" || type == "BPE" : type == "Unigram";
    if (!type.empty() && !fits) return false;
    token_list tokens;
    // Memory that is never written costs nothing.
    tokens.reserve(at.num_left() / kLeastEntry, at.num_left());
    if (!(object ? read_object(at, tokens) : read_array(at, tokens, out.scores))) return false;
    out.end = at.place();
    tokens.shrink();
    out.tokens = std::make_shared<vocabulary>(std::move(tokens));
    // A key that occurs twice is an error, a piece that does is not.
    return !object || out.tokens->num_distinct() == out.tokens->tokens().size();
}

// The same of merges: "a b",
constexpr size_t kLeastMerge = 6;

// Finds the tokens of merges. Their texts are looked up some time after they are read, when what the
// look-up needs has come into the cache.
class merge_reader {
public:
    explicit merge_reader(const vocabulary& tokens) : tokens_(tokens) {}

    // Reads one merge; false for one that is anything but two parts.
    bool read(json_cursor& at, bool pair) {
        waiting& next = waiting_[count_ % kAhead];
        if (count_ >= kAhead && !finish(next)) return false;
        if (!(pair ? read_pair(at, next) : read_spaced(at, next))) return false;
        next.hashes[0] = vocabulary::hash(next.left);
        next.hashes[1] = vocabulary::hash(next.right);
        for (const uint64_t hash : next.hashes) tokens_.prefetch(hash);
        ++count_;
        return true;
    }
    bool finish_all() {
        for (size_t i = count_ < kAhead ? 0 : count_ - kAhead; i < count_; ++i) {
            if (!finish(waiting_[i % kAhead])) return false;
        }
        return true;
    }
    std::vector<bpe_merge> merges;

private:
    static constexpr size_t kAhead = 16;
    struct waiting {
        std::string_view left, right;  // in the file, or in `texts`; null: a comment
        std::string texts[2];
        uint64_t hashes[2];
    };

    static bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }
    // The text need not be UTF-8: the tokens are, among which it is looked up.
    static bool read_text(json_cursor& at, std::string& buffer, std::string_view& text) {
        if (at.take_plain_string(text)) return true;
        buffer.clear();
        if (!at.read_string(buffer)) return false;
        text = buffer;
        return true;
    }
    static bool read_spaced(json_cursor& at, waiting& out) {
        std::string_view whole;
        out.left = {};
        if (!read_text(at, out.texts[0], whole)) return false;
        // A comment, if it is UTF-8 for certain.
        if (whole.substr(0, 8) == "#version") return std::all_of(whole.begin(), whole.end(), is_ascii);
        const size_t space = whole.find(' ');
        if (space == std::string_view::npos || whole.find(' ', space + 1) != std::string_view::npos) return false;
        out.left = whole.substr(0, space);
        out.right = whole.substr(space + 1);
        return true;
    }
    static bool read_pair(json_cursor& at, waiting& out) {
        return at.take('[') && read_text(at, out.texts[0], out.left) && at.take(',') &&
               read_text(at, out.texts[1], out.right) && at.take(']');
    }
    bool finish(const waiting& next) {
        if (next.left.data() == nullptr) return true;
        const int64_t left = tokens_.find(next.left, next.hashes[0]);
        const int64_t right = tokens_.find(next.right, next.hashes[1]);
        const int64_t merged = find_whole(next.left, next.right);
        if (left < 0 || right < 0 || merged < 0) return false;
        guess_ = static_cast<size_t>(merged);
        merges.push_back({id(left), id(right), id(merged)});
        return true;
    }
    // In most files the tokens stand in the order of the merges, with one merge or a few for each.
    int64_t find_whole(std::string_view left, std::string_view right) {
        const token_list& list = tokens_.tokens();
        const size_t size = left.size() + right.size();
        for (size_t place = guess_; place < std::min(guess_ + 2, list.size()); ++place) {
            const std::string_view text = list.text(place);
            if (text.size() == size && text.substr(0, left.size()) == left && text.substr(left.size()) == right) {
                return static_cast<int64_t>(place);
            }
        }
        whole_.assign(left).append(right);
        return tokens_.find(whole_);
    }
    int32_t id(int64_t place) const { return tokens_.tokens().id(static_cast<size_t>(place)); }

    const vocabulary& tokens_;
    waiting waiting_[kAhead];
    size_t count_ = 0, guess_ = 0;
    std::string whole_;
};

// Reads the value of model.merges, whose items are all strings or all pairs.
bool read_merges(json_cursor& at, json_vocabulary& out) {
    at.skip_space();
    out.merges_begin = at.place();
    if (!at.take('[')) return false;
    at.skip_space();
    const bool pairs = at.peek() == '[';
    if (at.peek() == ']') return false;
    merge_reader reader(*out.tokens);
    reader.merges.reserve(at.num_left() / kLeastMerge);
    do {
        if (!reader.read(at, pairs)) return false;
    } while (at.take(','));
    if (!at.take(']') || !reader.finish_all()) return false;
    out.merges_end = at.place();
    out.merges = std::make_shared<std::vector<bpe_merge>>(std::move(reader.merges));
    return true;
}

// Looks for the vocabulary among the members of the model.
bool read_model(json_cursor& at, json_vocabulary& out) {
    if (!at.take('{')) return false;
    std::string_view key, type;
    for (bool first = true; next_member(at, first, key); first = false) {
        if (key == "vocab") {
            if (out.tokens != nullptr || !read_value(at, type, out)) return false;
            if (type != "BPE") return true;
            continue;
        }
        if (key == "merges" && out.tokens != nullptr) return read_merges(at, out);
        at.skip_space();
        if (key == "type" && at.peek() == '"') {
            if (!at.skip_string(type)) return false;
            if (type != "WordPiece" && type != "Unigram" && type != "BPE") return false;
        } else if (!at.skip_value()) {
            return false;
        }
    }
    return false;
}

}  // namespace

json_vocabulary read_json_vocabulary(std::string_view file) {
    if (file.size() > std::numeric_limits<uint32_t>::max()) return {};
    json_cursor at(file);
    if (!at.take('{')) return {};
    std::string_view key;
    for (bool first = true; next_member(at, first, key); first = false) {
        if (key == "model") {
            json_vocabulary out;
            return read_model(at, out) ? std::move(out) : json_vocabulary{};
        }
        if (!at.skip_value()) return {};
    }
    return {};
}

}  // namespace encoder_engine
