// Tokens matched in the text as they stand, before or after normalization.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace encoder_engine {

struct added_token {
    std::vector<uint32_t> content;  // code points to match; already normalized where `normalized`
    int32_t id = 0;
    bool single_word = false;  // only where no word character adjoins
    bool lstrip = false;       // the match takes in white space before it
    bool rstrip = false;       // and after it
    bool normalized = false;   // matched in the normalized text
};

// Returns the tokens that are matched in normalized text, or those matched in the raw text.
std::vector<added_token> added_tokens_where(const std::vector<added_token>& tokens, bool normalized);

// Finds the longest added token at a position. The caller goes from left to right, so the matches
// are leftmost-longest, as in the library `tokenizers`.
class added_token_set {
public:
    explicit added_token_set(std::vector<added_token> tokens);

    bool empty() const { return tokens_.empty(); }
    const std::vector<added_token>& tokens() const { return tokens_; }
    // Characters of the longest token.
    int64_t max_size() const { return max_size_; }
    // The distinct first characters.
    const std::vector<uint32_t>& first_codes() const { return first_codes_; }

    // The longest token whose content equals text[at, ...), or nullptr.
    template <typename Char>
    const added_token* longest_at(const Char* text, int64_t at, int64_t length) const {
        const added_token* found = nullptr;
        int32_t node = 0;
        for (int64_t i = at; i < length; ++i) {
            const auto next = edges_.find(edge_key(node, static_cast<uint32_t>(text[i])));
            if (next == edges_.end()) break;
            node = next->second;
            if (ends_[node] >= 0) found = &tokens_[ends_[node]];
        }
        return found;
    }
    // Whether a token may begin with text[at, length) and go on behind it.
    template <typename Char>
    bool may_go_on(const Char* text, int64_t at, int64_t length) const {
        int32_t node = 0;
        for (int64_t i = at; i < length; ++i) {
            const auto next = edges_.find(edge_key(node, static_cast<uint32_t>(text[i])));
            if (next == edges_.end()) return false;
            node = next->second;
        }
        return inner_[static_cast<size_t>(node)];
    }

private:
    static uint64_t edge_key(int32_t node, uint32_t code) {
        return static_cast<uint64_t>(node) << 32 | code;
    }
    std::vector<added_token> tokens_;
    std::vector<uint32_t> first_codes_;
    int64_t max_size_ = 0;
    std::unordered_map<uint64_t, int32_t> edges_;  // (node, code point) -> node
    std::vector<int32_t> ends_;                    // per node: index of the token, or -1
    std::vector<bool> inner_;                      // per node: some edge leads on
};

// How many characters of white space there are at both ends of a token's text.
struct blank_ends {
    int32_t leading = 0, trailing = 0;
    bool any() const { return leading > 0 || trailing > 0; }
};

// A match widened by lstrip and rstrip: [start, stop) in the text searched.
struct added_match {
    const added_token* token = nullptr;
    int64_t start = 0;
    int64_t stop = 0;
    int64_t end = 0;  // where the content itself ends; the search goes on from here
    blank_ends blanks;
};

// White space and word characters as the library's regular expressions have them.
bool is_strip_space(uint32_t code);
bool is_word_character(uint32_t code);
// Whether a character counts as white space at the ends of a token. U+0120 counts: it stands for
// the space in byte-level pieces.
inline bool is_blank(uint32_t code) { return code == 0x120 || is_strip_space(code); }

// Walks one text from left to right, and finds the accepted added tokens.
template <typename Char>
class added_token_finder {
public:
    added_token_finder(const added_token_set& set, const Char* text, int64_t length)
        : set_(set), text_(text), length_(length) {}

    // Moves on in the same text: its first `dropped` characters are gone, and others were appended.
    void move(const Char* text, int64_t length, int64_t dropped) {
        text_ = text;
        length_ = length;
        segment_start_ = segment_start_ > dropped ? segment_start_ - dropped : 0;
        search_from_ = search_from_ > dropped ? search_from_ - dropped : 0;
    }
    // Takes what stands before `at` for done: no match reaches into it.
    void begin_at(int64_t at) { segment_start_ = search_from_ = at; }
    // Where the plain text after the last accepted match begins.
    int64_t segment_start() const { return segment_start_; }

    // The accepted match whose content starts at `at`, if any; at must not decrease.
    bool find(int64_t at, added_match& match) {
        if (at < search_from_) return false;
        const added_token* token = set_.longest_at(text_, at, length_);
        if (token == nullptr) return false;
        match = {token, at, at + static_cast<int64_t>(token->content.size()), 0, {}};
        match.end = match.stop;
        if (token->single_word && touches_word(match)) {
            // The library's search resumes after a refused match, not inside it.
            search_from_ = match.end;
            return false;
        }
        if (token->lstrip) {
            while (match.start > segment_start_ && is_strip_space(text_[match.start - 1])) {
                --match.start;
            }
        }
        if (token->rstrip) {
            while (match.stop < length_ && is_strip_space(text_[match.stop])) ++match.stop;
        }
        // The match before may already cover the white space before this one. As in the library,
        // only a token with lstrip is then moved behind it.
        if (token->lstrip && match.start < segment_start_) match.start = segment_start_;
        if (match.start >= match.stop) {
            search_from_ = match.end;
            return false;
        }
        match.blanks = blanks_of(match);
        return true;
    }
    // Accepts the match from find(): plain text resumes after it.
    void accept(const added_match& match) {
        segment_start_ = match.stop;
        search_from_ = match.end;
    }

private:
    bool touches_word(const added_match& match) const {
        return (match.start > 0 && is_word_character(text_[match.start - 1])) ||
               (match.stop < length_ && is_word_character(text_[match.stop]));
    }

    blank_ends blanks_of(const added_match& match) const {
        int64_t first = match.start, last = match.stop;
        while (first < match.stop && is_blank(text_[first])) ++first;
        while (last > match.start && is_blank(text_[last - 1])) --last;
        return {static_cast<int32_t>(first - match.start), static_cast<int32_t>(match.stop - last)};
    }

    const added_token_set& set_;
    const Char* text_;
    int64_t length_;
    int64_t segment_start_ = 0;
    int64_t search_from_ = 0;
};

}  // namespace encoder_engine
