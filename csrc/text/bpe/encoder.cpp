// Puts the tables together and walks texts of each character width.
#include "text/bpe/encoder.h"

#include "text/bpe/words.h"
#include "text/normalizer/normalized_text.h"

namespace encoder_engine {
namespace {

// Passes letters through the search for added tokens, and plain characters past it.
template <bool with_spans>
struct bpe_sink {
    static constexpr bool kWithSpans = with_spans;
    normalized_text<bpe_words<with_spans>>& text;
    bpe_words<with_spans>& words;

    bool full() const { return words.full(); }
    void letter(uint32_t code, int64_t source) { text.letter(code, source); }
    void end_segment() { text.end_segment(); }
    void added(const added_match& match) { text.added(match); }
    template <typename Char>
    int64_t take(const Char* from, int64_t length, int64_t at) {
        if (!text.settle()) return 0;
        const int64_t taken = words.take(from, length, at);
        if (taken > 0) text.skip(from[taken - 1], at + taken - 1);
        return taken;
    }
};

bpe_splitting fit(bpe_splitting splitting, const bpe_model& model) {
    if (splitting.pattern == word_pattern::blanks && !model.marks_begin()) {
        splitting.pattern = word_pattern::whole;
    }
    return splitting;
}

}  // namespace

bpe_encoder::bpe_encoder(std::shared_ptr<const bpe_model> model, std::vector<normalizer_step> steps,
                         bpe_splitting splitting, const std::vector<added_token>& added)
    : model_(std::move(model)), splitting_(fit(splitting, *model_)), normalizer_(std::move(steps)),
      table_(normalizer_), raw_added_(added_tokens_where(added, false)),
      normalized_added_(added_tokens_where(added, true)),
      rules_(normalizer_, (table_.mark_added_starts(raw_added_.first_codes()), table_), raw_added_),
      chars_(table_, model_->rules().symbols == bpe_symbols::characters,
             splitting_.pattern == word_pattern::gpt2_digits, raw_added_, normalized_added_),
      cutter_(splitting_.pattern),
      lane_{*model_, splitting_, cutter_, chars_, table_, choose_scan_functions()} {}

std::unique_ptr<encoder_scratch> bpe_encoder::make_scratch() const {
    return std::make_unique<bpe_scratch>(*model_);
}

template <typename Char, bool with_spans>
status bpe_encoder::encode_chars(const text_view& text, int64_t limit, bpe_scratch& scratch,
                                 token_buffer& out) const {
    static const space_folding kNoFolding;
    bpe_words<with_spans> words(lane_, scratch, out, limit);
    normalized_text<bpe_words<with_spans>> normalized(kNoFolding, normalized_added_, scratch.buffer,
                                                      scratch.codes, words);
    bpe_sink<with_spans> sink{normalized, words};
    return text_walk<Char, bpe_sink<with_spans>>(rules_, static_cast<const Char*>(text.data),
                                                 text.length, scratch.stretch, scratch.spare, sink)
        .run();
}

template <typename Char>
status bpe_encoder::encode_width(const text_view& text, int64_t limit, bpe_scratch& scratch,
                                 token_buffer& out) const {
    return out.with_spans ? encode_chars<Char, true>(text, limit, scratch, out)
                          : encode_chars<Char, false>(text, limit, scratch, out);
}

status bpe_encoder::encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                           token_buffer& out) const {
    auto& own = static_cast<bpe_scratch&>(scratch);
    switch (text.width) {
        case char_width::ascii:
        case char_width::one: return encode_width<uint8_t>(text, limit, own, out);
        case char_width::two: return encode_width<uint16_t>(text, limit, own, out);
        case char_width::four: return encode_width<uint32_t>(text, limit, own, out);
    }
    return {};
}

}  // namespace encoder_engine
