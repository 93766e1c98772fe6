// Walks the members of the file and of its model, and reads the pieces in one pass.
#include "text/json/vocabulary_reader.h"

#include <limits>
#include <utility>

#include "text/json/json_cursor.h"

namespace encoder_engine {
namespace {

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
        if (!at.read_string(tokens) || !at.take(':') || !at.read_id(kMaxJsonId, id) || id <= last) {
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
        if (tokens.size() > size_t{kMaxJsonId} || !at.take('[') || !at.read_string(tokens) ||
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
    if (!(object ? read_object(at, tokens) : read_array(at, tokens, out.scores))) return false;
    out.end = at.place();
    out.tokens = std::make_shared<vocabulary>(std::move(tokens));
    // A key that occurs twice is an error, a piece that does is not.
    return !object || out.tokens->sorted().size() == out.tokens->tokens().size();
}

// Parts a merge that is written with a space between.
bool add_merge(std::string_view merge, token_list& out) {
    const size_t space = merge.find(' ');
    if (space == std::string_view::npos || merge.find(' ', space + 1) != std::string_view::npos) return false;
    out.add(merge.substr(0, space), 0);
    out.add(merge.substr(space + 1), 0);
    return true;
}

// Reads the value of model.merges, whose items are all strings or all pairs.
bool read_merges(json_cursor& at, json_vocabulary& out) {
    at.skip_space();
    out.merges_begin = at.place();
    if (!at.take('[')) return false;
    auto merges = std::make_shared<token_list>();
    token_list written;
    at.skip_space();
    const bool pairs = at.peek() == '[';
    if (at.peek() == ']') return false;
    do {
        if (pairs) {
            if (!at.take('[') || !at.read_string(*merges)) return false;
            merges->end_text(0);
            if (!at.take(',') || !at.read_string(*merges)) return false;
            merges->end_text(0);
            if (!at.take(']')) return false;
        } else {
            if (!at.read_string(written)) return false;
            written.end_text(0);
        }
    } while (at.take(','));
    if (!at.take(']')) return false;
    out.merges_end = at.place();
    for (size_t i = 0; i < written.size(); ++i) {
        const std::string_view merge = written.text(i);
        if (merge.substr(0, 8) != "#version" && !add_merge(merge, *merges)) return false;
    }
    out.merges = std::move(merges);
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
