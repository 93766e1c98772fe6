// One function for each kind of expression, alternatives in their order.
#include "text/bpe/matcher.h"

namespace encoder_engine {

int64_t word_matcher::run(int64_t at, uint8_t classes) {
    while (has(at) && is(at, classes)) at = text_.next(at);
    return at;
}

int64_t word_matcher::run_of_others(int64_t at) {
    while (has(at) && is_other(at)) at = text_.next(at);
    return at;
}

int64_t word_matcher::contraction(int64_t at) const {
    // Lower-case only in GPT-2's and CLIP's; elsewhere (?i), to which U+017F is an s.
    const bool folds = pattern_ == word_pattern::digits_one || pattern_ == word_pattern::digits_three;
    const auto letter = [&](int64_t place) -> int {
        if (place >= text_.size) return 0;
        const int byte = text_.bytes[place];
        return folds && byte >= 'A' && byte <= 'Z' ? byte + 32 : byte;
    };
    const int first = letter(at + 1), second = letter(at + 2);
    if (folds && first == 0xC5 && second == 0xBF) return 3;
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                     (first == 'l' && second == 'l');
    return two ? 3 : 0;
}

// \s+(?!\S)|\s+: all white space at the end, else all but the last, else one.
int64_t word_matcher::match_spaces(int64_t at) {
    int64_t end = at, last = at;
    while (has(end) && is(end, kSpaceClass)) {
        last = end;
        end = text_.next(end);
    }
    // A digit that is a word of its own ends the text before it.
    const bool ends = end >= text_.size || (pattern_ == word_pattern::gpt2_digits && is(end, kNumberClass));
    return ends || last == at ? end : last;
}

int64_t word_matcher::match_gpt2(int64_t at) {
    if (pattern_ == word_pattern::gpt2_digits && is(at, kNumberClass)) return text_.next(at);
    if (is(at, kQuoteClass)) {
        const int64_t size = contraction(at);
        if (size > 0) return at + size;
        has(at + 2);
    }
    const int64_t first = is(at, kBlankClass) && has(at + 1) ? at + 1 : at;
    if (is(first, kLetterClass)) return run(first, kLetterClass);
    if (is(first, kNumberClass)) {
        return pattern_ == word_pattern::gpt2_digits ? match_spaces(at) : run(first, kNumberClass);
    }
    return is(first, kSpaceClass) ? match_spaces(at) : run_of_others(first);
}

int64_t word_matcher::match_modern(int64_t at) {
    if (is(at, kQuoteClass)) {
        const int64_t size = contraction(at);
        if (size > 0) return at + size;
        has(at + 2);
    }
    // [^\r\n\p{L}\p{N}]?\p{L}+
    if (is(at, kLetterClass)) return run(at, kLetterClass);
    const int64_t second = text_.next(at);
    if (!is(at, kNumberClass | kNewlineClass) && has(second) && is(second, kLetterClass)) {
        return run(second, kLetterClass);
    }
    if (is(at, kNumberClass)) {
        int64_t end = second;
        const int most = pattern_ == word_pattern::digits_three ? 3 : 1;
        for (int count = 1; count < most && has(end) && is(end, kNumberClass); ++count) {
            end = text_.next(end);
        }
        return end;
    }
    //  ?[^\s\p{L}\p{N}]+[\r\n]*
    const int64_t first = is(at, kBlankClass) && has(at + 1) ? at + 1 : at;
    if (is_other(first)) return run(run_of_others(first), kNewlineClass);
    // \s*[\r\n]+: up to the last line end of the white space
    int64_t newlines = at, end = at;
    while (has(end) && is(end, kSpaceClass)) {
        const bool newline = is(end, kNewlineClass);
        end = text_.next(end);
        if (newline) newlines = end;
    }
    return newlines > at ? newlines : match_spaces(at);
}

int64_t word_matcher::match_clip(int64_t at) {
    if (is(at, kQuoteClass)) {
        const int64_t size = contraction(at);
        if (size > 0) return at + size;
        has(at + 2);
    }
    if (is(at, kLetterClass)) return run(at, kLetterClass);
    if (is(at, kNumberClass)) return text_.next(at);
    return is(at, kSpaceClass) ? run(at, kSpaceClass) : run_of_others(at);
}

int64_t word_matcher::match(int64_t at) {
    open_ = false;
    int64_t end = at;
    switch (pattern_) {
        case word_pattern::gpt2:
        case word_pattern::gpt2_digits: end = match_gpt2(at); break;
        case word_pattern::digits_three:
        case word_pattern::digits_one: end = match_modern(at); break;
        case word_pattern::clip: end = match_clip(at); break;
        case word_pattern::whole:
            end = text_.size;
            open_ = !text_.last;
            break;
        case word_pattern::marks:
            end = at + 1;
            while (has(end) && !is(end, kBlankClass)) ++end;
            break;
        case word_pattern::blanks:
            while (has(end) && is(end, kBlankClass)) ++end;
            while (has(end) && !is(end, kBlankClass)) ++end;
            break;
    }
    return open_ ? -1 : end;
}

}  // namespace encoder_engine
