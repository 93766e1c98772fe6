// Normalization, pre-tokenization and WordPiece in one pass over the text.
#pragma once

#include <memory>
#include <vector>

#include "text/added_tokens.h"
#include "text/words/char_classes.h"
#include "text/unicode/char_table.h"
#include "text/sequence_encoder.h"
#include "text/words/word_cutter.h"
#include "text/wordpiece/wordpiece.h"

namespace encoder_engine {

class wordpiece_encoder : public sequence_encoder {
public:
    wordpiece_encoder(std::shared_ptr<const wordpiece_model> model,
                      const normalizer_options& options, const std::vector<added_token>& added);

    std::unique_ptr<encoder_scratch> make_scratch() const override;
    status encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                  token_buffer& out) const override;
    int64_t encode_rows(const text_view* texts, int64_t count, const row_frame& frame,
                        encoder_scratch& scratch, token_buffer& out,
                        row_results& results) const override;

    const wordpiece_model& model() const { return *model_; }
    const char_table& table() const { return table_; }
    // Null unless some added token is matched in normalized text. Its payloads are code points.
    const char_table* text_table() const { return text_table_.get(); }
    const added_token_set& raw_added() const { return raw_added_; }
    const added_token_set& normalized_added() const { return normalized_added_; }
    const char_classes& classes() const { return classes_; }
    const scan_functions& functions() const { return functions_; }

private:
    void mark_added_starts();

    std::shared_ptr<const wordpiece_model> model_;
    added_token_set raw_added_;
    added_token_set normalized_added_;
    char_table table_;
    std::unique_ptr<char_table> text_table_;
    char_classes classes_;
    scan_functions functions_;
};

}  // namespace encoder_engine
