// Encodes one text or pair into its row, and into overflow rows if requested.
#pragma once

#include "text/batch/encode_batch.h"

namespace encoder_engine {

class row_encoder {
public:
    row_encoder(const batch_encoder& batch, const encode_options& options, batch_worker& worker,
                bool paired);

    // Encodes texts [index, ...) below `end` together, as far as possible; returns how many.
    int64_t encode_together(const batch_input& input, int64_t index, int64_t end,
                            uint8_t* truncated);
    // Appends the rows of text `index`; `truncated` says whether tokens were lost.
    status encode(const batch_input& input, int64_t index, uint8_t& truncated);

private:
    // One text of the batch: its only piece, or its words.
    struct text_pieces {
        const text_view* first;
        int64_t count;
        bool words;
    };

    status encode_streaming(const text_pieces& text, uint8_t& truncated);
    status encode_sliced(const text_pieces& first, const text_pieces* second, uint8_t& truncated);
    status encode_texts(const text_pieces& first, const text_pieces* second);
    status encode_text(const text_pieces& text, int64_t limit, bool second, token_buffer& out);
    status encode_words(const text_pieces& text, int64_t limit, random_stream& random,
                        token_buffer& out);
    status encode_view(const text_view& text, int64_t limit, random_stream& random,
                       token_buffer& out);
    static text_pieces pieces(const text_batch& texts, int64_t index) {
        return {texts.begin(index), texts.count(index), texts.starts != nullptr};
    }
    status add_overflow();
    void add_row(token_range first, token_range second);
    void add_text(const token_buffer& text, token_range kept);
    void trim_spans(int64_t start);
    void end_row(int64_t start, int64_t first_length);

    const sequence_encoder& encoder_;
    const encode_options& options_;
    batch_worker& worker_;
    const row_template& template_;
    bool can_group_ = false, prefixed_ = false;
    row_frame frame_{nullptr, 0, nullptr, 0, 0};
    pod_vector<int32_t> lengths_;
    int64_t room_;  // tokens of text that a row may hold
    int32_t sample_ = 0;
};

}  // namespace encoder_engine
