// The Unigram model of a tokenizer.json: normalizers, words and the best path in one pass.
#pragma once

#include <memory>
#include <vector>

#include "text/added_tokens.h"
#include "text/sequence_encoder.h"
#include "text/normalizer/chars.h"
#include "text/normalizer/normalized_text.h"
#include "text/unigram/lane.h"
#include "text/unigram/model.h"
#include "text/normalizer/walk.h"
#include "text/unigram/words.h"

namespace encoder_engine {

struct unigram_options {
    std::vector<normalizer_step> steps;
    unigram_splitting splitting;
    unigram_ids ids;
};

struct unigram_scratch : encoder_scratch {
    word_path_scratch words;
    unigram_lane_scratch lane;
    sourced_text stretch, spare;   // text under normalization
    sourced_text buffer;           // normalized text in which added tokens are searched
    pod_vector<uint32_t> codes;

    void choose_by(path_chooser* chooser) override { words.chooser = chooser; }
    int64_t num_bytes() const override {
        return words.num_bytes() + 4 * codes.capacity() +
               8 * (stretch.capacity() + spare.capacity() + buffer.capacity());
    }
};

class unigram_encoder : public sequence_encoder {
public:
    unigram_encoder(std::shared_ptr<const unigram_model> model, unigram_options options,
                    const std::vector<added_token>& added);

    std::unique_ptr<encoder_scratch> make_scratch() const override;
    status encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                  token_buffer& out) const override;
    int64_t encode_rows(const text_view* texts, int64_t count, const row_frame& frame,
                        encoder_scratch& scratch, token_buffer& out,
                        row_results& results) const override;

private:
    template <bool with_spans>
    int64_t encode_short(const text_view* texts, int64_t count, const row_frame& frame,
                         unigram_scratch& scratch, token_buffer& out, row_results& results) const;
    template <typename Char, bool with_spans>
    status encode_chars(const text_view& text, int64_t limit, unigram_scratch& scratch,
                        token_buffer& out) const;
    template <typename Char>
    status encode_width(const text_view& text, int64_t limit, unigram_scratch& scratch,
                        token_buffer& out) const;

    std::shared_ptr<const unigram_model> model_;
    unigram_splitting splitting_;
    unigram_ids ids_;
    space_folding folding_;
    step_normalizer normalizer_;
    step_char_table table_;
    added_token_set raw_added_;
    added_token_set normalized_added_;
    walk_rules rules_;
    std::unique_ptr<unigram_lane_rules> lane_;  // where words can be told from their characters
};

}  // namespace encoder_engine
