// Walks a text: finds its added tokens, and normalizes what lies between them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "text/added_tokens.h"
#include "text/normalizer/chars.h"
#include "text/status.h"

namespace encoder_engine {

// The rules of every walk over a text, whatever its character width.
struct walk_rules {
    const step_normalizer& normalizer;  // less the folding of spaces
    const step_char_table& table;
    const added_token_set& added;          // those matched in the text as it stands
    bool strips_end = false;   // some step strips white space at the end of a segment
    bool needs_start = false;  // some step treats its first character differently
    bool any_lstrip = false;   // some added token takes in white space before it

    walk_rules(const step_normalizer& steps, const step_char_table& chars,
               const added_token_set& tokens)
        : normalizer(steps), table(chars), added(tokens) {
        for (const normalizer_step& step : steps.steps()) {
            strips_end |= step.kind == normalizer_kind::strip && step.right;
            needs_start |= step.kind == normalizer_kind::prepend;
        }
        for (const added_token& token : tokens.tokens()) any_lstrip |= token.lstrip;
    }
};

// Regular characters pass one by one; an irregular one is normalized together with its neighbours.
// The sink receives letter(code, source), end_segment() and added(match); take(text, length, at) may
// take any number of characters at `at` past the walk, and returns how many.
template <typename Char, typename Sink>
class text_walk {
public:
    text_walk(const walk_rules& rules, const Char* text, int64_t length, sourced_text& stretch,
                 sourced_text& spare, Sink& sink)
        : rules_(rules), finder_(rules.added, text, length), text_(text), length_(length),
          stretch_(stretch), spare_(spare), sink_(sink) {}

    status run() {
        // The token before may have taken in white space at the end, within which a token may
        // begin.
        while ((at_ < length_ || (found_ && search_at_ < length_)) && !sink_.full()) {
            ends_ = found_ = false;
            plain_end_ = at_;
            see(at_);
            if (at_ < plain_end_) {
                const status result = segment();
                if (!result.ok()) return result;
                if (sink_.full()) return {};
                sink_.end_segment();
            }
            if (!found_) return {};
            finder_.accept(match_);
            sink_.added(match_);
            at_ = match_.stop;
            search_at_ = match_.end;
        }
        return {};
    }

private:
    // Characters searched ahead for added tokens. The sink checks for them itself where it takes characters.
    static constexpr int64_t kAhead = 64;

    step_char entry(int64_t at) const { return rules_.table[text_[at]]; }

    // Searches added tokens until plain_end_ is greater than `at`, or the segment has ended.
    void see(int64_t at) {
        if (ends_ || plain_end_ > at) return;
        if (rules_.added.empty()) {
            plain_end_ = length_;
            ends_ = true;
            return;
        }
        const int64_t wanted = at + kAhead;
        for (; search_at_ < length_; ++search_at_) {
            // An added token with lstrip may take in the white space before it.
            if (search_at_ > wanted &&
                !(rules_.any_lstrip && is_strip_space(text_[search_at_ - 1]))) {
                plain_end_ = search_at_;
                return;
            }
            if (entry(search_at_).starts_added() && finder_.find(search_at_, match_)) {
                found_ = true;
                break;
            }
        }
        ends_ = true;
        plain_end_ = found_ ? std::max(match_.start, at_) : length_;
    }
    bool inside(int64_t at) {
        see(at);
        return at < plain_end_;
    }

    status segment() {
        int64_t solid = -1;  // the last solid character is not before this
        if (rules_.needs_start || !entry(at_).solid() ||
            (inside(at_ + 1) && !entry(at_ + 1).regular())) {
            const status result = first_stretch();
            if (!result.ok()) return result;
        }
        while (inside(at_) && !sink_.full()) {
            if (take_plain()) continue;
            const step_char c = entry(at_);
            if (rules_.strips_end && !c.solid() && solid < at_) {
                solid = next_solid(at_);
                if (solid < 0) return stretch(plain_end_, {false, true});
            }
            if (c.regular() && (!inside(at_ + 1) || entry(at_ + 1).regular())) {
                put(c);
                continue;
            }
            int64_t stop = stretch_end(at_ + 1);
            if (rules_.strips_end && !entry(stop - 1).solid() && next_solid(stop) < 0) {
                stop = plain_end_;
            }
            const status result = stretch(stop, {false, !inside(stop)});
            if (!result.ok()) return result;
        }
        return {};
    }

    // Passes characters by the sink's own way, if it takes some here.
    bool take_plain() {
        const int64_t end = ends_ ? plain_end_ : length_;
        const int64_t taken = sink_.take(text_ + at_, end - at_, at_);
        if (taken == 0) return false;
        at_ += taken;
        plain_end_ = std::max(plain_end_, at_);
        search_at_ = std::max(search_at_, at_);
        return true;
    }

    // The first place from `at` on where a stretch can end, at most the segment's end.
    int64_t stretch_end(int64_t at) {
        while (inside(at) && !step_char_table::separates(entry(at - 1), entry(at))) ++at;
        return at;
    }
    // The first solid character from `at` on, or -1.
    int64_t next_solid(int64_t at) {
        while (inside(at) && !entry(at).solid()) ++at;
        return inside(at) ? at : -1;
    }

    // Normalizes what the start of a segment can influence: all up to the first character that
    // leaves more than white space.
    status first_stretch() {
        const int64_t start = at_;
        int64_t stop = start;
        bool aligned = true;
        do {
            at_ = start;
            const int64_t solid = next_solid(stop);
            stop = solid < 0 ? plain_end_ : stretch_end(solid + 1);
            if (rules_.strips_end && inside(stop) && next_solid(stop) < 0) stop = plain_end_;
            const status result = normalize(stop, {true, !inside(stop)}, aligned);
            if (!result.ok()) return result;
        } while (inside(stop) && is_blank());
        if (!aligned && Sink::kWithSpans && inside(stop)) {
            // The sources of the whole segment have shifted.
            while (inside(plain_end_)) continue;
            at_ = start;
            const status result = normalize(plain_end_, {true, true}, aligned);
            if (!result.ok()) return result;
        }
        pass();
        return {};
    }
    bool is_blank() const {
        for (int64_t i = 0; i < stretch_.size(); ++i) {
            if (!is_strip_space(stretch_[i].code)) return false;
        }
        return true;
    }

    status stretch(int64_t stop, segment_edges edges) {
        bool aligned = true;
        const status result = normalize(stop, edges, aligned);
        if (result.ok()) pass();
        return result;
    }

    // Normalizes the text up to `stop` into stretch_.
    status normalize(int64_t stop, segment_edges edges, bool& aligned) {
        stretch_.clear();
        stretch_.reserve_more(stop - at_);
        for (; at_ < stop; ++at_) {
            if (entry(at_).surrogate()) return {error_code::lone_surrogate, -1, at_, false};
            stretch_.push({static_cast<uint32_t>(text_[at_]), static_cast<int32_t>(at_)});
        }
        aligned = rules_.normalizer.run(stretch_, spare_, edges);
        return {};
    }
    void pass() {
        for (int64_t i = 0; i < stretch_.size() && !sink_.full(); ++i) {
            sink_.letter(stretch_[i].code, stretch_[i].source);
        }
    }
    void put(step_char c) {
        if (c.identity()) {
            sink_.letter(text_[at_], at_);
        } else {
            int64_t size = 0;
            const uint32_t* form = rules_.table.form(c, size);
            for (int64_t i = 0; i < size; ++i) sink_.letter(form[i], at_);
        }
        ++at_;
    }

    const walk_rules& rules_;
    added_token_finder<Char> finder_;
    const Char* text_;
    int64_t length_;
    sourced_text& stretch_;
    sourced_text& spare_;
    Sink& sink_;
    added_match match_;          // the token behind the segment, if found_
    int64_t at_ = 0;             // the next character
    int64_t search_at_ = 0;      // the next place to look for an added token
    int64_t plain_end_ = 0;      // the segment reaches at least so far
    bool ends_ = false;          // ... and no further
    bool found_ = false;
};

}  // namespace encoder_engine
