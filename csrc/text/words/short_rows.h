// Encodes several short texts, one row each, from one chunk of words.
#pragma once

#include <algorithm>
#include <cstdint>

#include "text/sequence_encoder.h"
#include "text/words/word_chunk.h"

namespace encoder_engine {

// Appends the rows of the first texts that fit one chunk; returns how many. accepts(text) must
// refuse a text with tokens other than words. emit(first_word, end_word, first_unit, limit) appends
// the tokens of one text's words, up to `limit` tokens of output.
template <typename Accept, typename Emit>
int64_t encode_short_rows(const text_view* texts, int64_t count, const row_frame& frame,
                          const char_classes& classes, const scan_functions& functions,
                          word_chunk& chunk, token_buffer& out, row_results& results,
                          const Accept& accepts, const Emit& emit) {
    uint16_t firsts[kMaxTextsInChunk + 1];
    count = std::min<int64_t>(count, kMaxTextsInChunk);
    int64_t accepted = 0;
    while (accepted < count && accepts(texts[accepted])) ++accepted;
    const int num_texts = scan_texts(texts, accepted, classes, functions, chunk, firsts);
    int word = 0;
    for (int i = 0; i < num_texts; ++i) {
        out.append_special(frame.before, frame.num_before);
        const int64_t start = out.size();
        const int first_word = word;
        while (word < chunk.num_words && chunk.starts[word] < firsts[i + 1]) ++word;
        const bool unlimited = frame.room >= chunk.kUnits;
        emit(first_word, word, firsts[i], unlimited ? frame.room : start + frame.room + 1);
        int64_t num_tokens = out.size() - start;
        if (num_tokens > frame.room) {
            num_tokens = frame.room;
            out.truncate(start + num_tokens);
            results.truncated[i] = 1;
        }
        out.append_special(frame.after, frame.num_after);
        results.lengths.append(static_cast<int32_t>(num_tokens));
    }
    return num_texts;
}

}  // namespace encoder_engine
