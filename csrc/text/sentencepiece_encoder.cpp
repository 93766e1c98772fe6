// Reads texts of each character width by the rules, and says what becomes of white space.
#include "text/sentencepiece_encoder.h"

#include <algorithm>

#include "text/sentencepiece_tokens.h"

namespace encoder_engine {
namespace {

constexpr uint32_t kMark = 0x2581;

template <typename Char, bool with_spans>
class sentencepiece_walk {
public:
    sentencepiece_walk(const sentencepiece_encoder& encoder, const Char* text, int64_t length,
                       sentencepiece_tokens<with_spans>& sink)
        : rules_(encoder.rules()), mark_(encoder.mark()),
          removes_(encoder.options().remove_extra_whitespaces), text_(text), length_(length),
          sink_(sink), after_space_(removes_) {}

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
    bool after_space_;
};

template <typename Char, bool with_spans>
status encode_chars(const sentencepiece_encoder& encoder, const text_view& text, int64_t limit,
                    sentencepiece_scratch& scratch, token_buffer& out) {
    sentencepiece_tokens<with_spans> tokens(encoder, scratch, out, limit);
    return sentencepiece_walk<Char, with_spans>(encoder, static_cast<const Char*>(text.data),
                                                text.length, tokens)
        .run();
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
      mark_(options_.escape_whitespaces ? kMark : ' ') {}

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

}  // namespace encoder_engine
