// Reads texts of each character width by the rules, and says what becomes of white space.
#include "text/sentencepiece/encoder.h"

#include <algorithm>

#include "text/sentencepiece/tokens.h"
#include "text/words/short_rows.h"

namespace encoder_engine {
namespace {

constexpr uint32_t kMark = 0x2581;

// Whether the model's words are each a mark and the characters between two spaces, whatever stands
// around them.
bool words_are_plain(const unigram_model& model, const sentencepiece_options& options) {
    return model.cuts_before() && options.add_dummy_prefix && options.remove_extra_whitespaces &&
           options.escape_whitespaces && !options.whitespace_as_suffix;
}

// What the lane takes a character for.
uint32_t lane_entry(uint32_t code, const sentencepiece_rules& rules, char_classes& classes) {
    // A zero at the end of a key stands for no character.
    if (code == 0 || (code >= 0xD800 && code < 0xE000)) return char_classes::kBlocked;
    const uint32_t ties = (rules.continues(code) ? char_classes::kBinds : 0) |
                          (rules.follows(code) ? char_classes::kTied : 0);
    // Text of ASCII characters alone is not asked for ties.
    if (code < 0x80 && rules.follows(code)) return char_classes::kBlocked;
    const sentencepiece_rules::step step = rules.alone(code);
    std::vector<uint32_t> form;
    if (step.form == nullptr) form.push_back(code);
    const uint8_t* at = step.form;
    while (step.form != nullptr && at < step.form + step.form_size) form.push_back(read_utf8(at));
    if (form.empty()) return ties;
    if (form.size() == 1 && form[0] == ' ') {
        return char_classes::one_unit(' ', char_classes::kSpace) | ties;
    }
    for (const uint32_t c : form) {
        if (c == ' ' || c == kMark || c == 0) return char_classes::kBlocked;
    }
    if (form.size() == 1 && form[0] < 0x10000) {
        return char_classes::one_unit(form[0], char_classes::kLetter) | ties;
    }
    return classes.letters(form.data(), static_cast<int64_t>(form.size()), ties);
}

// The letters above 0xFFFF: those that no rule knows.
void set_astral(const sentencepiece_rules& rules, char_classes& classes) {
    for (uint32_t block = 0; block < 0x1000; ++block) {
        uint64_t bits[4] = {~0ull, ~0ull, ~0ull, ~0ull};
        for (uint32_t i = 0; i < 256 && !rules.is_plain(0x100 + block); ++i) {
            const uint32_t code = 0x10000 + 256 * block + i;
            if (rules.continues(code) || rules.follows(code) || rules.alone(code).form != nullptr) {
                bits[i >> 6] &= ~(1ull << (i & 63));
            }
        }
        classes.set_astral(block, bits);
    }
}

std::unique_ptr<unigram_lane_rules> make_lane(const unigram_model& model,
                                              const sentencepiece_rules& rules,
                                              const sentencepiece_options& options) {
    std::vector<added_token> symbols;
    for (const std::string& symbol : options.symbols) {
        added_token token;
        const auto* at = reinterpret_cast<const uint8_t*>(symbol.data());
        const uint8_t* end = at + symbol.size();
        while (at < end) token.content.push_back(read_utf8(at));
        // That of one character only says that no rule is tried on it.
        if (token.content.size() > 1) symbols.push_back(std::move(token));
    }
    const added_token_set added(std::move(symbols));
    char_classes classes(added);
    for (uint32_t code = 0; code < 0x10000; ++code) {
        classes.wide[code] = lane_entry(code, rules, classes);
    }
    set_astral(rules, classes);
    for (const uint32_t code : added.first_codes()) classes.mark_start(code);
    classes.finish();
    const bool unknown_joins = model.find(&kMark, 1) == path_piece::kUnknown;
    return make_lane_rules(std::move(classes), kMark, true, unknown_joins, options.unknown_id,
                           options.byte_ids);
}

// The model may have more ids than there are scores.
std::vector<float> for_every_id(std::vector<float> scores, const unigram_model& model) {
    scores.resize(std::max(scores.size(), static_cast<size_t>(model.num_ids())));
    return scores;
}

template <typename Char, bool with_spans>
class sentencepiece_walk {
public:
    using lane = unigram_lane<Char, sentencepiece_tokens<with_spans>>;

    sentencepiece_walk(const sentencepiece_encoder& encoder, const Char* text, int64_t length,
                       sentencepiece_tokens<with_spans>& sink, lane* fast)
        : rules_(encoder.rules()), mark_(encoder.mark()),
          removes_(encoder.options().remove_extra_whitespaces), text_(text), length_(length),
          sink_(sink), lane_(fast), after_space_(removes_) {}

    status run() {
        int64_t at = 0;
        bool started = false;
        while (at < length_ && !sink_.full()) {
            const uint32_t code = text_[at];
            if (code >= 0xD800 && code < 0xE000) return {error_code::lone_surrogate, -1, at, false};
            const sentencepiece_rules::step step = rules_.next(text_, at, length_);
            if (!started && !(removes_ && is_space(step, at))) {
                started = true;
                sink_.start(at);
            }
            if (started && lane_ != nullptr && !is_space(step, at)) {
                const int64_t taken = take_words(at);
                at += taken;
                if (taken > 0) continue;
            }
            if (started) {
                const status result = put(step, at);
                if (!result.ok()) return result;
            }
            at += step.taken;
        }
        sink_.finish(length_);
        return {};
    }

private:
    // Takes whole words of plain characters, where one begins; returns how many characters.
    int64_t take_words(int64_t at) {
        int64_t space = -1;
        if (!sink_.begins_word(space)) return 0;
        const int64_t taken = lane_->take(text_ + at, length_ - at, at, space);
        if (taken > 0) {
            sink_.words_taken();
            after_space_ = false;
        }
        return taken;
    }
    bool is_space(const sentencepiece_rules::step& step, int64_t at) const {
        return step.form == nullptr ? step.taken == 1 && text_[at] == ' '
                                    : step.form_size == 1 && *step.form == ' ';
    }
    // Spaces behind spaces go, at the start of what a step gives.
    status put(const sentencepiece_rules::step& step, int64_t at) {
        bool any = false, space = false;
        const auto letter = [&](uint32_t code) {
            space = code == ' ';
            if (after_space_ && !any && space) return;
            any = true;
            sink_.letter(space ? mark_ : code, at);
        };
        if (step.form == nullptr) {
            for (int64_t i = at; i < at + step.taken; ++i) {
                const uint32_t code = text_[i];
                if (code >= 0xD800 && code < 0xE000) {
                    return {error_code::lone_surrogate, -1, i, false};
                }
                letter(code);
            }
        } else {
            const uint8_t* from = step.form;
            const uint8_t* end = from + step.form_size;
            while (from < end) letter(read_utf8(from));
        }
        if (any) after_space_ = space && removes_;
        return {};
    }

    const sentencepiece_rules& rules_;
    uint32_t mark_;
    bool removes_;
    const Char* text_;
    int64_t length_;
    sentencepiece_tokens<with_spans>& sink_;
    lane* lane_;
    bool after_space_;
};

template <typename Char, bool with_spans>
status encode_chars(const sentencepiece_encoder& encoder, const text_view& text, int64_t limit,
                    sentencepiece_scratch& scratch, token_buffer& out) {
    using walk = sentencepiece_walk<Char, with_spans>;
    sentencepiece_tokens<with_spans> tokens(encoder, scratch, out, limit);
    const Char* chars = static_cast<const Char*>(text.data);
    if (encoder.lane() == nullptr || scratch.words.chooser != nullptr) {
        return walk(encoder, chars, text.length, tokens, nullptr).run();
    }
    typename walk::lane lane(*encoder.lane(), encoder.model(), scratch.lane, out, limit,
                             text.width == char_width::ascii, tokens);
    return walk(encoder, chars, text.length, tokens, &lane).run();
}

template <typename Char>
status encode_width(const sentencepiece_encoder& encoder, const text_view& text, int64_t limit,
                    sentencepiece_scratch& scratch, token_buffer& out) {
    return out.with_spans ? encode_chars<Char, true>(encoder, text, limit, scratch, out)
                          : encode_chars<Char, false>(encoder, text, limit, scratch, out);
}

}  // namespace

sentencepiece_encoder::sentencepiece_encoder(std::shared_ptr<const unigram_model> model,
                                             sentencepiece_options options)
    : model_(std::move(model)), options_(std::move(options)),
      rules_(options_.charsmap, options_.symbols),
      mark_(options_.escape_whitespaces ? kMark : ' '),
      scores_(for_every_id(std::move(options_.scores), *model_),
              static_cast<float>(model_->unknown_score()), options_.unknown_id, options_.byte_ids) {
    if (words_are_plain(*model_, options_)) lane_ = make_lane(*model_, rules_, options_);
}

std::unique_ptr<encoder_scratch> sentencepiece_encoder::make_scratch() const {
    return std::make_unique<sentencepiece_scratch>();
}

status sentencepiece_encoder::encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                                     token_buffer& out) const {
    auto& own = static_cast<sentencepiece_scratch&>(scratch);
    switch (text.width) {
        case char_width::ascii:
        case char_width::one: return encode_width<uint8_t>(*this, text, limit, own, out);
        case char_width::two: return encode_width<uint16_t>(*this, text, limit, own, out);
        case char_width::four: return encode_width<uint32_t>(*this, text, limit, own, out);
    }
    return {};
}

template <bool with_spans>
int64_t sentencepiece_encoder::encode_short(const text_view* texts, int64_t count,
                                            const row_frame& frame, sentencepiece_scratch& scratch,
                                            token_buffer& out, row_results& results) const {
    using tokens_of_rows = sentencepiece_tokens<with_spans>;
    tokens_of_rows tokens(*this, scratch, out, 0);
    unigram_lane<uint8_t, tokens_of_rows> lane(*lane_, *model_, scratch.lane, out, 0, true, tokens);
    const auto accepts = [](const text_view&) { return true; };
    const auto emit = [&](int first_word, int end_word, int first_unit, int64_t limit) {
        tokens.restart();
        lane.take_row(first_word, end_word, first_unit, limit);
    };
    return encode_short_rows(texts, count, frame, lane_->classes, lane_->functions,
                             scratch.lane.chunk, out, results, accepts, emit);
}

int64_t sentencepiece_encoder::encode_rows(const text_view* texts, int64_t count,
                                           const row_frame& frame, encoder_scratch& scratch,
                                           token_buffer& out, row_results& results) const {
    auto& own = static_cast<sentencepiece_scratch&>(scratch);
    if (lane_ == nullptr || own.words.chooser != nullptr) return 0;
    return out.with_spans ? encode_short<true>(texts, count, frame, own, out, results)
                          : encode_short<false>(texts, count, frame, own, out, results);
}

}  // namespace encoder_engine
