// Builds the per-tokenizer table of character effects from the Unicode tables.
#include "text/unicode/char_table.h"

#include <algorithm>

#include "text/unicode/tables.h"

namespace encoder_engine {
namespace {

constexpr uint32_t kSurrogateFirst = 0xD800, kSurrogateLast = 0xDFFF;

void add_char(normal_form& form, uint32_t code) {
    const uint32_t flags = unicode_properties(code);
    const char_kind kind = flags & kUnicodeWhitespace    ? char_kind::space
                           : flags & kUnicodePunctuation ? char_kind::isolated
                                                         : char_kind::identity;
    form.chars[form.count++] = {code, kind, 0};
}

}  // namespace

normal_form normalize_code_point(uint32_t code, const normalizer_options& options) {
    normal_form form;
    if (options.clean_text) {
        const uint32_t flags = unicode_properties(code);
        if (flags & kUnicodeRemoved) return form;
        if (flags & kUnicodeWhitespace) code = ' ';
    }
    form.cjk = options.handle_cjk && unicode_is_cjk(code);
    uint32_t parts[kMaxDecomposition] = {code};
    const int num_parts = options.strip_accents ? unicode_decompose(code, parts) : 1;
    for (int i = 0; i < num_parts; ++i) {
        if (options.strip_accents) {
            if (unicode_properties(parts[i]) & kUnicodeMark) continue;
            form.nonstarter |= unicode_combining_class(parts[i]) != 0;
        }
        lower_code_point(parts[i], options, form);
    }
    return form;
}

void lower_code_point(uint32_t code, const normalizer_options& options, normal_form& form) {
    uint32_t lower[2] = {code};
    const int count = options.lowercase ? unicode_lowercase(code, lower) : 1;
    for (int i = 0; i < count; ++i) add_char(form, lower[i]);
}

char_table::char_table(const normalizer_options& options, const payload_function& payload,
                       const std::vector<uint32_t>& known)
    : options_(options), stage_(kUnicodeEnd >> 8, 0), actions_(256), shared_{true} {
    fill(kSurrogateFirst, kSurrogateLast, char_action::make(char_kind::surrogate, 0));
    if (options.strip_accents) {
        fill(kHangulFirst, kHangulEnd - 1, char_action::make(char_kind::hangul, 0));
    }
    if (options.handle_cjk) {
        // Nearly all of 80,000 ideographs share one answer; the few others are among the known.
        const auto common = char_action::make(char_kind::cjk, payload(kUnicodeEnd));
        for (const code_range& range : kCjkRanges) fill(range.first, range.last, common);
        for (const uint32_t code : known) {
            if (unicode_is_cjk(code)) set(code, payload);
        }
    }
    set_listed(payload);
}

void char_table::set_listed(const payload_function& payload) {
    for (int i = 0; i < unicode_property_runs_count; ++i) {
        const uint32_t flags = unicode_property_runs[i] & 0xFF;
        const uint32_t first = unicode_property_runs[i] >> 8;
        const uint32_t last = i + 1 < unicode_property_runs_count
                                  ? (unicode_property_runs[i + 1] >> 8) - 1
                                  : kUnicodeEnd - 1;
        if (options_.clean_text && flags & kUnicodeRemoved) {
            fill(first, last, char_action::make(char_kind::dropped, 0));
        } else if (flags & (kUnicodeWhitespace | kUnicodePunctuation | kUnicodeMark)) {
            for (uint32_t code = first; code <= last; ++code) set(code, payload);
        }
    }
    if (options_.lowercase) {
        set(0x130, payload);
        for (int i = 0; i < unicode_lowercase_runs_count; ++i) {
            const lowercase_run& run = unicode_lowercase_runs[i];
            for (uint32_t code = run.first; code <= run.last; code += run.step) set(code, payload);
        }
    }
    if (!options_.strip_accents) return;
    for (int i = 0; i < unicode_singletons_count; ++i) {
        set(static_cast<uint32_t>(unicode_singletons[i] >> 24), payload);
    }
    for (int i = 0; i < unicode_decompositions_count;) {
        const uint32_t head = unicode_decompositions[i];
        set(head & 0xFFFFFF, payload);
        i += 1 + static_cast<int>(head >> 24);
    }
    for (int i = 0; i < unicode_combining_runs_count; ++i) {
        if ((unicode_combining_runs[i] & 0xFF) == 0) continue;
        const uint32_t end = unicode_combining_runs[i + 1] >> 8;
        for (uint32_t code = unicode_combining_runs[i] >> 8; code < end; ++code) {
            set(code, payload);
        }
    }
}

char_action& char_table::writable(uint32_t code) {
    uint16_t& block = stage_[code >> 8];
    if (shared_[block]) {
        const size_t from = static_cast<size_t>(block) << 8;
        block = static_cast<uint16_t>(shared_.size());
        shared_.push_back(false);
        actions_.resize(actions_.size() + 256);
        std::copy_n(actions_.begin() + static_cast<std::ptrdiff_t>(from), 256, actions_.end() - 256);
    }
    return actions_[static_cast<size_t>(block) << 8 | (code & 0xFF)];
}

void char_table::fill(uint32_t first, uint32_t last, char_action action) {
    int uniform = -1;
    for (uint32_t code = first; code <= last;) {
        if ((code & 0xFF) != 0 || code + 255 > last) {
            writable(code++) = action;
            continue;
        }
        if (uniform < 0) {
            uniform = static_cast<int>(shared_.size());
            shared_.push_back(true);
            actions_.resize(actions_.size() + 256, action);
        }
        stage_[code >> 8] = static_cast<uint16_t>(uniform);
        code += 256;
    }
}

void char_table::set(uint32_t code, const payload_function& payload) {
    normal_form form = normalize_code_point(code, options_);
    for (int i = 0; i < form.count; ++i) {
        if (form.chars[i].kind == char_kind::isolated) {
            form.chars[i].payload = payload(form.chars[i].code);
        }
    }
    char_action action;
    const normal_char& only = form.chars[0];
    if (form.nonstarter) {
        action = char_action::make(char_kind::nonstarter, 0);
    } else if (form.count == 0) {
        action = char_action::make(char_kind::dropped, 0);
    } else if (form.count > 1) {
        action = char_action::make(char_kind::expanded, static_cast<uint32_t>(expansions_.size()));
        expansions_.push_back(form);
    } else if (form.cjk) {
        action = char_action::make(char_kind::cjk, payload(only.code));
    } else if (only.kind == char_kind::space) {
        action = char_action::make(char_kind::space, only.code);
    } else if (only.kind == char_kind::isolated) {
        action = char_action::make(char_kind::isolated, only.payload);
    } else if (only.code != code) {
        action = char_action::make(char_kind::mapped, only.code);
    }
    writable(code) = action;
}

void char_table::mark_added_starts(const std::vector<uint32_t>& codes) {
    for (const uint32_t code : codes) writable(code).bits |= char_action::kStartsAdded;
}

}  // namespace encoder_engine
