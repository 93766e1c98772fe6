// The interface of every model to the batch encoder: one text in, its tokens appended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "common/pod_vector.h"
#include "text/added_tokens.h"
#include "text/status.h"
#include "text/text_view.h"

namespace encoder_engine {

// A token whose text has white space at its ends.
struct blank_token {
    int64_t place;
    blank_ends blanks;
};

// Tokens of one or more sequences, back to back.
struct token_buffer {
    pod_vector<int32_t> ids;
    // With spans only: for each token, its first character, the end of its characters, and the
    // index of its word.
    pod_vector<int32_t> spans;
    pod_vector<int32_t> words;
    // For tokenizers that trim spans: the tokens to trim, in rising order.
    pod_vector<blank_token> blanks;
    bool with_spans = false;
    bool with_blanks = false;

    int64_t size() const { return ids.size(); }
    void truncate(int64_t size) {
        ids.truncate(size);
        if (!with_spans) return;
        spans.truncate(2 * size);
        words.truncate(size);
        while (!blanks.empty() && blanks[blanks.size() - 1].place >= size) {
            blanks.truncate(blanks.size() - 1);
        }
    }
    void clear() {
        ids.clear();
        spans.clear();
        words.clear();
        blanks.clear();
    }
    // Records the white space at the ends of the last token.
    void note_blanks(blank_ends ends) {
        if (with_blanks && ends.any()) blanks.append({size() - 1, ends});
    }
    // Appends tokens [first, last) of another buffer of the same kind.
    void append(const token_buffer& from, int64_t first, int64_t last) {
        const auto before = [](const blank_token& token, int64_t place) { return token.place < place; };
        const blank_token* const blanks_end = from.blanks.data() + from.blanks.size();
        const blank_token* at = std::lower_bound(from.blanks.data(), blanks_end, first, before);
        for (; at < blanks_end && at->place < last; ++at) {
            blanks.append({size() + at->place - first, at->blanks});
        }
        ids.append(from.ids.data() + first, last - first);
        if (!with_spans) return;
        spans.append(from.spans.data() + 2 * first, 2 * (last - first));
        words.append(from.words.data() + first, last - first);
    }
    // Appends template tokens: no characters, no word.
    void append_special(const int32_t* special, int64_t count) {
        ids.append(special, count);
        for (int64_t i = 0; with_spans && i < count; ++i) {
            spans.append(0);
            spans.append(0);
            words.append(-1);
        }
    }
    int64_t num_bytes() const {
        return 4 * (ids.capacity() + spans.capacity() + words.capacity());
    }
};

class path_chooser;

// Buffers that one thread reuses from text to text.
class encoder_scratch {
public:
    virtual ~encoder_scratch() = default;
    // Sets the chooser of the next call's paths, null for the best paths. Models with only one path
    // per text ignore it.
    virtual void choose_by(path_chooser*) {}
    // The bytes of buffers that grow with the texts.
    virtual int64_t num_bytes() const = 0;
};

// The fixed ids around each text in its row, and how many of the text's tokens fit.
struct row_frame {
    const int32_t* before;
    int64_t num_before;
    const int32_t* after;
    int64_t num_after;
    int64_t room;
};

// The results of texts encoded as rows.
struct row_results {
    pod_vector<int32_t>& lengths;  // tokens of each text that its row kept
    uint8_t* truncated;            // set to 1 for a text that lost some
};

// Immutable: any number of threads may encode at once, each with its own scratch memory.
class sequence_encoder {
public:
    virtual ~sequence_encoder() = default;
    virtual std::unique_ptr<encoder_scratch> make_scratch() const = 0;
    // Appends the text's tokens; stops reading soon after `limit` of them.
    virtual status encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                          token_buffer& out) const = 0;
    // Appends whole rows of the first few texts, if they can be encoded together at less cost;
    // returns how many, possibly 0.
    virtual int64_t encode_rows(const text_view*, int64_t, const row_frame&, encoder_scratch&,
                                token_buffer&, row_results&) const {
        return 0;
    }
};

}  // namespace encoder_engine
