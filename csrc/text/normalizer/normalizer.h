// The normalizers of a tokenizer.json, one after the other on a stretch of text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/pod_vector.h"
#include "text/normalizer/charsmap.h"
#include "text/status.h"
#include "text/text_view.h"

namespace encoder_engine {

// A character of text under way, and the one of the original text that it stands for.
struct sourced_char {
    uint32_t code;
    int32_t source;
};
using sourced_text = pod_vector<sourced_char>;

enum class normalizer_kind : uint8_t {
    charsmap,       // compiled rules, on graphemes of less than six bytes, else on characters
    replace,        // each occurrence of `pattern` becomes `content`
    replace_runs,   // runs of spaces, or of white space, of at least `least` characters
    nfc, nfd, nfkc, nfkd,
    strip_accents,  // drops every mark
    lowercase,
    strip,          // white space at the ends of a segment
    prepend,        // `content` before a segment that is not empty
};

struct normalizer_step {
    normalizer_kind kind;
    std::vector<uint32_t> pattern;  // of replace_runs: characters that are also replaced one by one
    std::vector<uint32_t> content;
    bool white_space = false;  // replace_runs: of all white space, not of spaces only
    int64_t least = 0;
    bool left = false, right = false;  // strip
    std::shared_ptr<const charsmap> rules;
};

// Whether a stretch of text begins or ends its segment, the text between two added tokens.
struct segment_edges {
    bool first, last;
};

class step_normalizer {
public:
    explicit step_normalizer(std::vector<normalizer_step> steps) : steps_(std::move(steps)) {}

    const std::vector<normalizer_step>& steps() const { return steps_; }
    // Runs all steps. Returns false if characters dropped at the very start have shifted the
    // sources of everything after them in the segment.
    bool run(sourced_text& text, sourced_text& spare, segment_edges edges) const;
    // Runs one step, from `text` to `out`.
    static bool apply(const normalizer_step& step, const sourced_text& text, sourced_text& out,
                      segment_edges edges);

private:
    std::vector<normalizer_step> steps_;
};

// Normalizes a text by the steps alone: for added tokens, and for tests.
status normalize_by_steps(const text_view& text, const step_normalizer& normalizer,
                         std::vector<uint32_t>& out);

}  // namespace encoder_engine
