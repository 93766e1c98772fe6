// Puts the tables together and walks texts of each character width.
#include "text/unigram/encoder.h"

#include <algorithm>
#include <optional>

#include "text/words/short_rows.h"

namespace encoder_engine {
namespace {

// Takes the folding of spaces off the steps, if it is the last of them.
space_folding take_folding(std::vector<normalizer_step>& steps) {
    if (steps.empty()) return {};
    const normalizer_step& last = steps.back();
    if (last.kind != normalizer_kind::replace_runs || last.white_space || !last.pattern.empty() ||
        last.least > 2) {
        return {};
    }
    space_folding folding{true, last.least, last.content};
    steps.pop_back();
    return folding;
}

// Whether a rule makes something else of white space and a mark on it: then a space need not end a
// word.
bool spaces_join(const step_normalizer& normalizer) {
    for (const normalizer_step& step : normalizer.steps()) {
        if (step.kind != normalizer_kind::charsmap) continue;
        for (uint32_t code = 0; code < 0x10000; ++code) {
            uint8_t bytes[4];
            if (is_strip_space(code) && step.rules->continues(bytes, write_utf8(code, bytes))) {
                return true;
            }
        }
    }
    return false;
}

// Whether the lane's words are the model's: each is the mark and the characters between two spaces,
// whatever stands around them.
bool words_are_plain(const unigram_splitting& splitting, const space_folding& folding,
                     const walk_rules& rules, const added_token_set& normalized) {
    const bool folds = folding.active && folding.least <= 2 &&
                       folding.content == std::vector<uint32_t>{' '};
    return normalized.empty() && !spaces_join(rules.normalizer) && !rules.strips_end && !rules.needs_start && splitting.metaspace &&
           splitting.split && splitting.scheme == prepend_scheme::always &&
           (folds || (splitting.white_space && !folding.active));
}

// What the lane takes a character for.
uint32_t lane_entry(uint32_t code, const step_char_table& table,
                    const unigram_splitting& splitting, char_classes& classes) {
    const step_char c = table[code];
    // A zero at the end of a key stands for no character.
    if (code == 0 || !(c.regular() || c.tied()) || c.surrogate()) return char_classes::kBlocked;
    uint32_t ties = (c.binds_wide() ? char_classes::kBindsWide : 0) |
                    (c.binds_narrow() ? char_classes::kBindsNarrow : 0);
    if (c.tied()) ties |= code < kWideFirst ? char_classes::kTiedNarrow : char_classes::kTiedWide;
    int64_t size = 1;
    const uint32_t* form = c.identity() ? &code : table.form(c, size);
    for (int64_t i = 0; i < size; ++i) {
        const bool space = form[i] == ' ' || (splitting.white_space && is_strip_space(form[i]));
        if (space && size == 1 && c.tied()) return classes.tied_space(ties);
        if (space && size == 1) return char_classes::one_unit(' ', char_classes::kSpace) | ties;
        if (space || form[i] == splitting.mark || form[i] == 0) return char_classes::kBlocked;
    }
    if (size == 1 && form[0] < 0x10000) {
        return char_classes::one_unit(form[0], char_classes::kLetter) | ties;
    }
    return classes.letters(form, size, ties);
}

// The letters above 0xFFFF: those that stand for themselves.
void set_astral(const step_char_table& table, char_classes& classes) {
    for (uint32_t block = 0; block < 0x1000; ++block) {
        uint64_t bits[4] = {~0ull, ~0ull, ~0ull, ~0ull};
        for (uint32_t i = 0; i < 256 && !table.is_plain(0x100 + block); ++i) {
            const step_char c = table[0x10000 + 256 * block + i];
            if (!c.regular() || !c.identity() || c.starts_added()) {
                bits[i >> 6] &= ~(1ull << (i & 63));
            }
        }
        classes.set_astral(block, bits);
    }
}

std::unique_ptr<unigram_lane_rules> make_lane(const unigram_splitting& splitting,
                                              const unigram_ids& ids,
                                              const step_char_table& table,
                                              const added_token_set& added) {
    char_classes classes(added);
    for (uint32_t code = 0; code < 0x10000; ++code) {
        classes.wide[code] = lane_entry(code, table, splitting, classes);
        if (table[code].starts_added()) classes.mark_start(code);
    }
    set_astral(table, classes);
    classes.finish();
    return make_lane_rules(std::move(classes), splitting.mark, !splitting.white_space, false,
                           ids.unknown, ids.bytes);
}

// Passes letters through the folding of spaces, and whole words of plain characters to the lane.
template <typename Char, bool with_spans>
struct unigram_sink {
    static constexpr bool kWithSpans = with_spans;
    normalized_text<unigram_words<with_spans>>& text;
    unigram_lane<Char, unigram_tokens<with_spans>>* lane;  // null where words need the characters

    bool full() const { return text.full(); }
    void letter(uint32_t code, int64_t source) { text.letter(code, source); }
    void end_segment() { text.end_segment(); }
    void added(const added_match& match) { text.added(match); }
    int64_t take(const Char* from, int64_t length, int64_t at) {
        int64_t space = -1;
        if (lane == nullptr || !text.begins_word(space)) return 0;
        const int64_t taken = lane->take(from, length, at, space);
        if (taken > 0) text.words_taken();
        return taken;
    }
};

}  // namespace

unigram_encoder::unigram_encoder(std::shared_ptr<const unigram_model> model,
                                 unigram_options options, const std::vector<added_token>& added)
    : model_(std::move(model)), splitting_(options.splitting), ids_(std::move(options.ids)),
      folding_(take_folding(options.steps)), normalizer_(std::move(options.steps)),
      table_(normalizer_), raw_added_(added_tokens_where(added, false)),
      normalized_added_(added_tokens_where(added, true)),
      rules_(normalizer_, table_, raw_added_) {
    table_.mark_added_starts(raw_added_.first_codes());
    if (words_are_plain(splitting_, folding_, rules_, normalized_added_)) {
        lane_ = make_lane(splitting_, ids_, table_, raw_added_);
    }
}

std::unique_ptr<encoder_scratch> unigram_encoder::make_scratch() const {
    return std::make_unique<unigram_scratch>();
}

template <typename Char, bool with_spans>
status unigram_encoder::encode_chars(const text_view& text, int64_t limit,
                                     unigram_scratch& scratch, token_buffer& out) const {
    unigram_tokens<with_spans> tokens(*model_, ids_, scratch.words, out, limit);
    unigram_words<with_spans> words(splitting_, tokens);
    normalized_text<unigram_words<with_spans>> normalized(folding_, normalized_added_, scratch.buffer,
                                           scratch.codes, words);
    std::optional<unigram_lane<Char, unigram_tokens<with_spans>>> lane;
    if (lane_ != nullptr && scratch.words.chooser == nullptr) {
        lane.emplace(*lane_, *model_, scratch.lane, out, limit, text.width == char_width::ascii, tokens);
    }
    unigram_sink<Char, with_spans> sink{normalized, lane ? &*lane : nullptr};
    return text_walk<Char, unigram_sink<Char, with_spans>>(
               rules_, static_cast<const Char*>(text.data), text.length, scratch.stretch,
               scratch.spare, sink)
        .run();
}

template <typename Char>
status unigram_encoder::encode_width(const text_view& text, int64_t limit,
                                     unigram_scratch& scratch, token_buffer& out) const {
    return out.with_spans ? encode_chars<Char, true>(text, limit, scratch, out)
                          : encode_chars<Char, false>(text, limit, scratch, out);
}

status unigram_encoder::encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                               token_buffer& out) const {
    auto& own = static_cast<unigram_scratch&>(scratch);
    switch (text.width) {
        case char_width::ascii:
        case char_width::one: return encode_width<uint8_t>(text, limit, own, out);
        case char_width::two: return encode_width<uint16_t>(text, limit, own, out);
        case char_width::four: return encode_width<uint32_t>(text, limit, own, out);
    }
    return {};
}

template <bool with_spans>
int64_t unigram_encoder::encode_short(const text_view* texts, int64_t count,
                                      const row_frame& frame, unigram_scratch& scratch,
                                      token_buffer& out, row_results& results) const {
    unigram_tokens<with_spans> tokens(*model_, ids_, scratch.words, out, 0);
    unigram_lane<uint8_t, unigram_tokens<with_spans>> lane(*lane_, *model_, scratch.lane, out, 0, true,
                                                           tokens);
    // A space at the end may be a token of its own.
    const auto accepts = [this](const text_view& text) {
        if (text.width != char_width::ascii || text.length == 0 || !lane_->mark_is_space) return true;
        const uint8_t last = static_cast<const uint8_t*>(text.data)[text.length - 1];
        return (lane_->classes.flags[last] & char_classes::kLetter) != 0;
    };
    const auto emit = [&](int first_word, int end_word, int first_unit, int64_t limit) {
        tokens.restart();
        lane.take_row(first_word, end_word, first_unit, limit);
    };
    return encode_short_rows(texts, count, frame, lane_->classes, lane_->functions,
                             scratch.lane.chunk, out, results, accepts, emit);
}

int64_t unigram_encoder::encode_rows(const text_view* texts, int64_t count, const row_frame& frame,
                                     encoder_scratch& scratch, token_buffer& out,
                                     row_results& results) const {
    auto& own = static_cast<unigram_scratch&>(scratch);
    // An unknown token may have white space at its ends.
    if (lane_ == nullptr || own.words.chooser != nullptr || out.with_blanks) return 0;
    return out.with_spans ? encode_short<true>(texts, count, frame, own, out, results)
                          : encode_short<false>(texts, count, frame, own, out, results);
}

}  // namespace encoder_engine
