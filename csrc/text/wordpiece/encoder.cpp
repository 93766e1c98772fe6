// Puts the tables together and runs the scanner for each character width.
#include "text/wordpiece/encoder.h"

#include <algorithm>

#include "text/wordpiece/normalize_text.h"
#include "text/wordpiece/scanner.h"
#include "text/words/short_rows.h"
#include "text/unicode/tables.h"
#include "text/wordpiece/word_lane.h"
#include "text/wordpiece/word_sinks.h"

namespace encoder_engine {
namespace {

template <typename Char, bool with_spans>
status encode_chars(const wordpiece_encoder& encoder, const text_view& text, int64_t limit,
                    wordpiece_scratch& scratch, token_buffer& out) {
    const Char* chars = static_cast<const Char*>(text.data);
    word_sink<with_spans> words(encoder.model(), scratch, out, limit);
    if (encoder.text_table() == nullptr) {
        // A word of the short cache may have 16 characters.
        if (encoder.model().max_word_characters() >= word_key::kMaxSize) {
            return word_lane<Char, word_sink<with_spans>>(
                       encoder.table(), encoder.classes(), encoder.functions(),
                       encoder.raw_added(), chars, text.length, text.width == char_width::ascii,
                       scratch.chunk, words)
                .run();
        }
        return scanner<Char, word_sink<with_spans>>(encoder.table(), encoder.raw_added(), chars,
                                                    text.length, words)
            .run();
    }
    text_sink<with_spans> segments(words, encoder.normalized_added(), scratch);
    return scanner<Char, text_sink<with_spans>>(*encoder.text_table(), encoder.raw_added(), chars,
                                                text.length, segments)
        .run();
}

template <typename Char>
status encode_width(const wordpiece_encoder& encoder, const text_view& text, int64_t limit,
                    wordpiece_scratch& scratch, token_buffer& out) {
    return out.with_spans ? encode_chars<Char, true>(encoder, text, limit, scratch, out)
                          : encode_chars<Char, false>(encoder, text, limit, scratch, out);
}

template <bool with_spans>
int64_t encode_short(const wordpiece_encoder& encoder, const text_view* texts, int64_t count,
                     const row_frame& frame, wordpiece_scratch& scratch, token_buffer& out,
                     row_results& results) {
    word_chunk& chunk = scratch.chunk;
    word_sink<with_spans> words(encoder.model(), scratch, out, 0);
    const auto accepts = [](const text_view&) { return true; };
    const auto emit = [&](int first_word, int end_word, int first_unit, int64_t limit) {
        words.restart(limit);
        words.template emit<uint8_t>(chunk, first_word, end_word, -int64_t{first_unit});
    };
    return encode_short_rows(texts, count, frame, encoder.classes(), encoder.functions(), chunk, out,
                             results, accepts, emit);
}

}  // namespace

wordpiece_encoder::wordpiece_encoder(std::shared_ptr<const wordpiece_model> model,
                                     const normalizer_options& options,
                                     const std::vector<added_token>& added)
    : model_(std::move(model)), raw_added_(added_tokens_where(added, false)),
      normalized_added_(added_tokens_where(added, true)),
      table_(
          options,
          [this](uint32_t code) {
              return static_cast<uint32_t>(code == kUnicodeEnd ? model_->unknown_id()
                                                               : model_->match_character(code));
          },
          model_->characters()),
      text_table_(normalized_added_.empty() ? nullptr : make_text_table(options)),
      classes_((mark_added_starts(), table_), raw_added_), functions_(choose_scan_functions()) {}

void wordpiece_encoder::mark_added_starts() {
    table_.mark_added_starts(raw_added_.first_codes());
    if (text_table_ != nullptr) text_table_->mark_added_starts(raw_added_.first_codes());
}

std::unique_ptr<encoder_scratch> wordpiece_encoder::make_scratch() const {
    return std::make_unique<wordpiece_scratch>();
}

int64_t wordpiece_encoder::encode_rows(const text_view* texts, int64_t count,
                                       const row_frame& frame, encoder_scratch& scratch,
                                       token_buffer& out, row_results& results) const {
    if (text_table_ != nullptr || model_->max_word_characters() < word_key::kMaxSize) return 0;
    auto& own = static_cast<wordpiece_scratch&>(scratch);
    return out.with_spans ? encode_short<true>(*this, texts, count, frame, own, out, results)
                          : encode_short<false>(*this, texts, count, frame, own, out, results);
}

status wordpiece_encoder::encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                                 token_buffer& out) const {
    auto& own = static_cast<wordpiece_scratch&>(scratch);
    switch (text.width) {
        case char_width::ascii:
        case char_width::one: return encode_width<uint8_t>(*this, text, limit, own, out);
        case char_width::two: return encode_width<uint16_t>(*this, text, limit, own, out);
        case char_width::four: return encode_width<uint32_t>(*this, text, limit, own, out);
    }
    return {};
}

}  // namespace encoder_engine
