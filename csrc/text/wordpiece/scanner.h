// The scanner: dispatches each character of a text on its action and feeds a sink.
#pragma once

#include <cstdint>

#include "text/added_tokens.h"
#include "text/unicode/char_table.h"
#include "text/wordpiece/nonstarter_run.h"
#include "text/status.h"
#include "text/unicode/tables.h"

namespace encoder_engine {

// Sinks are in word_sinks.h; the payloads of the table must be those the sink expects.
template <typename Char, typename Sink>
class scanner {
public:
    scanner(const char_table& table, const added_token_set& added, const Char* text,
            int64_t length, Sink& sink)
        : table_(table), finder_(added, text, length), text_(text), length_(length), sink_(sink) {}

    status run() {
        int64_t at = 0;
        while (at < length_ && !sink_.full()) {
            const status result = step(at);
            if (!result.ok()) return result;
        }
        sink_.finish();
        return {};
    }

    // Takes one character, an added token or a run of combining characters, and moves on.
    status step(int64_t& at) {
        const uint32_t code = text_[at];
        const char_action action = table_[code];
        added_match match;
        if (action.starts_added() && finder_.find(at, match)) {
            sink_.added(match);
            finder_.accept(match);
            at = match.end;
        } else if (action.kind() == char_kind::surrogate) {
            return {error_code::lone_surrogate, -1, at, false};
        } else if (action.kind() == char_kind::nonstarter) {
            nonstarter_run<Char, Sink> run(text_, length_, table_.options(), finder_, sink_);
            at = run.emit(at);
        } else {
            character(code, action, at++);
        }
        return {};
    }

private:
    void character(uint32_t code, char_action action, int64_t at) {
        switch (action.kind()) {
            case char_kind::identity: sink_.letter(code, at); break;
            case char_kind::mapped: sink_.letter(action.payload(), at); break;
            case char_kind::space: sink_.space(action.payload(), at); break;
            case char_kind::isolated: sink_.isolated(action.payload(), at); break;
            case char_kind::cjk: sink_.cjk(action.payload(), at); break;
            case char_kind::hangul: {
                uint32_t parts[kMaxDecomposition];
                const int count = unicode_decompose(code, parts);
                for (int i = 0; i < count; ++i) sink_.letter(parts[i], at);
                break;
            }
            case char_kind::expanded: {
                const normal_form& form = table_.expansion(action.payload());
                for (int i = 0; i < form.count; ++i) sink_.item(form.chars[i], at);
                break;
            }
            default: break;  // dropped; surrogate and nonstarter never come here
        }
    }

    const char_table& table_;
    added_token_finder<Char> finder_;
    const Char* text_;
    int64_t length_;
    Sink& sink_;
};

}  // namespace encoder_engine
