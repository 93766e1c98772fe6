// Puts the tables together and walks texts of each character width.
#include "text/unigram_encoder.h"

#include <algorithm>

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

unigram_rules make_rules(const unigram_normalizer& normalizer, const unigram_char_table& table,
                         const added_token_set& added) {
    unigram_rules rules{normalizer, table, added, false, false, false};
    for (const normalizer_step& step : normalizer.steps()) {
        rules.strips_end |= step.kind == normalizer_kind::strip && step.right;
        rules.needs_start |= step.kind == normalizer_kind::prepend;
    }
    for (const added_token& token : added.tokens()) rules.any_lstrip |= token.lstrip;
    return rules;
}

template <typename Char>
status copy_text(const text_view& text, sourced_text& out) {
    const Char* chars = static_cast<const Char*>(text.data);
    out.reserve_more(text.length);
    for (int64_t i = 0; i < text.length; ++i) {
        const uint32_t code = chars[i];
        if (code >= 0xD800 && code < 0xE000) return {error_code::lone_surrogate, -1, i, false};
        out.push({code, static_cast<int32_t>(i)});
    }
    return {};
}

}  // namespace

unigram_encoder::unigram_encoder(const unigram_pieces& pieces, unigram_options options,
                                 const std::vector<added_token>& added)
    : model_(pieces), splitting_(options.splitting), ids_(std::move(options.ids)),
      folding_(take_folding(options.steps)), normalizer_(std::move(options.steps)),
      table_(normalizer_), raw_added_(added_tokens_where(added, false)),
      normalized_added_(added_tokens_where(added, true)),
      rules_(make_rules(normalizer_, table_, raw_added_)) {
    table_.mark_added_starts(raw_added_.first_codes());
}

std::unique_ptr<encoder_scratch> unigram_encoder::make_scratch() const {
    return std::make_unique<unigram_scratch>();
}

template <typename Char, bool with_spans>
status unigram_encoder::encode_chars(const text_view& text, int64_t limit,
                                     unigram_scratch& scratch, token_buffer& out) const {
    unigram_tokens<with_spans> tokens(model_, ids_, scratch.words, out, limit);
    unigram_words<with_spans> words(splitting_, tokens);
    normalized_text<with_spans> normalized(folding_, normalized_added_, scratch.buffer,
                                           scratch.codes, words);
    return unigram_walk<Char, with_spans>(rules_, static_cast<const Char*>(text.data), text.length,
                                          scratch.stretch, scratch.spare, normalized)
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

status normalize_unigram(const text_view& text, const unigram_normalizer& normalizer,
                         std::vector<uint32_t>& out) {
    sourced_text chars, spare;
    status result;
    switch (text.width) {
        case char_width::ascii:
        case char_width::one: result = copy_text<uint8_t>(text, chars); break;
        case char_width::two: result = copy_text<uint16_t>(text, chars); break;
        case char_width::four: result = copy_text<uint32_t>(text, chars); break;
    }
    if (!result.ok()) return result;
    normalizer.run(chars, spare, {true, true});
    for (int64_t i = 0; i < chars.size(); ++i) out.push_back(chars[i].code);
    return {};
}

}  // namespace encoder_engine
