// The BPE model of a tokenizer.json: normalizers, words and merges in one pass over the text.
#pragma once

#include <memory>
#include <vector>

#include "text/bpe/text_buffer.h"
#include "text/normalizer/walk.h"
#include "text/sequence_encoder.h"

namespace encoder_engine {

struct bpe_scratch;

class bpe_encoder : public sequence_encoder {
public:
    bpe_encoder(std::shared_ptr<const bpe_model> model, std::vector<normalizer_step> steps,
                bpe_splitting splitting, const std::vector<added_token>& added);

    std::unique_ptr<encoder_scratch> make_scratch() const override;
    status encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                  token_buffer& out) const override;

private:
    template <typename Char, bool with_spans>
    status encode_chars(const text_view& text, int64_t limit, bpe_scratch& scratch,
                        token_buffer& out) const;
    template <typename Char>
    status encode_width(const text_view& text, int64_t limit, bpe_scratch& scratch,
                        token_buffer& out) const;

    std::shared_ptr<const bpe_model> model_;
    bpe_splitting splitting_;
    step_normalizer normalizer_;
    step_char_table table_;
    added_token_set raw_added_, normalized_added_;
    walk_rules rules_;
    bpe_chars chars_;
    pattern_cutter cutter_;
    bpe_lane lane_;
};

}  // namespace encoder_engine
