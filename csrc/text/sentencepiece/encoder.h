// A Unigram model as SentencePiece itself applies it to a text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/unigram/piece_sums.h"
#include "text/sentencepiece/rules.h"
#include "text/sequence_encoder.h"
#include "text/unigram/lane.h"
#include "text/unigram/model.h"
#include "text/unigram/paths/word_path.h"

namespace encoder_engine {

struct sentencepiece_scratch;

struct sentencepiece_options {
    std::string charsmap;
    std::vector<std::string> symbols;  // user-defined
    bool add_dummy_prefix = true;
    bool remove_extra_whitespaces = true;
    bool escape_whitespaces = true;    // spaces become U+2581
    bool whitespace_as_suffix = false;
    int32_t unknown_id = 0;
    std::vector<int32_t> byte_ids;     // by byte; empty without byte fallback
    std::vector<float> scores;         // by id, of the pieces that match
};

class sentencepiece_encoder : public sequence_encoder {
public:
    // The mark of `model` must be that of the options.
    sentencepiece_encoder(std::shared_ptr<const unigram_model> model,
                          sentencepiece_options options);

    std::unique_ptr<encoder_scratch> make_scratch() const override;
    status encode(const text_view& text, int64_t limit, encoder_scratch& scratch,
                  token_buffer& out) const override;
    int64_t encode_rows(const text_view* texts, int64_t count, const row_frame& frame,
                        encoder_scratch& scratch, token_buffer& out,
                        row_results& results) const override;

    const unigram_model& model() const { return *model_; }
    const sentencepiece_rules& rules() const { return rules_; }
    const sentencepiece_options& options() const { return options_; }
    const piece_scores& scores() const { return scores_; }
    // The character that stands for a space.
    uint32_t mark() const { return mark_; }
    // Null where word boundaries do not follow from the characters alone.
    const unigram_lane_rules* lane() const { return lane_.get(); }

private:
    template <bool with_spans>
    int64_t encode_short(const text_view* texts, int64_t count, const row_frame& frame,
                         sentencepiece_scratch& scratch, token_buffer& out,
                         row_results& results) const;

    std::shared_ptr<const unigram_model> model_;
    sentencepiece_options options_;
    sentencepiece_rules rules_;
    uint32_t mark_;
    piece_scores scores_;
    std::unique_ptr<unigram_lane_rules> lane_;
};

}  // namespace encoder_engine
