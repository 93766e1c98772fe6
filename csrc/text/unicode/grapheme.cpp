// The rules of grapheme clusters, as a state machine.
#include "text/unicode/grapheme.h"

#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

using kind = grapheme_class;

bool is_control(kind k) {
    return k == kind::control || k == kind::carriage_return || k == kind::line_feed;
}

bool is_extend(kind k) { return k == kind::extend || k == kind::linker || k == kind::non_joiner; }

bool hangul_joins(kind before, kind after) {
    switch (before) {
        case kind::hangul_l:
            return after == kind::hangul_l || after == kind::hangul_v || after == kind::hangul_lv ||
                   after == kind::hangul_lvt;
        case kind::hangul_v:
        case kind::hangul_lv: return after == kind::hangul_v || after == kind::hangul_t;
        case kind::hangul_t:
        case kind::hangul_lvt: return after == kind::hangul_t;
        default: return false;
    }
}

}  // namespace

grapheme_class grapheme_class_of(uint32_t code) {
    if (code >= kHangulFirst && code < kHangulEnd) {
        return (code - kHangulFirst) % 28 == 0 ? kind::hangul_lv : kind::hangul_lvt;
    }
    return static_cast<kind>(unicode_grapheme_run(code));
}

bool grapheme_cursor::breaks_before(grapheme_class next) const {
    if (is_control(last_) || is_control(next)) {
        return last_ != kind::carriage_return || next != kind::line_feed;
    }
    if (hangul_joins(last_, next)) return false;
    if (is_extend(next) || next == kind::joiner || next == kind::spacing) return false;
    if (last_ == kind::prepend) return false;
    if (next == kind::consonant && conjunct_ == conjunct::linked) return false;
    if (next == kind::pictograph && last_ == kind::joiner && pictograph_) return false;
    return next != kind::regional || last_ != kind::regional || !odd_regional_;
}

bool grapheme_cursor::take(uint32_t code) {
    const kind next = grapheme_class_of(code);
    const bool breaks = !started_ || breaks_before(next);
    started_ = true;
    if (next == kind::pictograph) {
        pictograph_ = true;
    } else if (!is_extend(next) && !(next == kind::joiner && last_ != kind::joiner)) {
        pictograph_ = false;
    } else if (last_ == kind::joiner) {
        pictograph_ = false;  // an extender behind the joiner
    }
    odd_regional_ = next == kind::regional && !(last_ == kind::regional && odd_regional_);
    if (next == kind::consonant) {
        conjunct_ = conjunct::consonant;
    } else if (next == kind::linker) {
        if (conjunct_ == conjunct::consonant) conjunct_ = conjunct::linked;
    } else if (next != kind::extend && next != kind::joiner) {
        conjunct_ = conjunct::none;
    }
    last_ = next;
    return breaks;
}

}  // namespace encoder_engine
