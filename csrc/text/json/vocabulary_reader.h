// The vocabulary of a tokenizer.json, read from the file's bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/bpe/model/merge_table.h"
#include "text/vocabulary.h"

namespace encoder_engine {

// The largest id that the encoders can store; json_reading.py has the same constant.
constexpr int32_t kMaxJsonId = (1 << 24) - 1;

struct json_vocabulary {
    size_t begin = 0, end = 0;  // the bytes of the value of model.vocab
    // The tokens: UTF-8 without lone surrogates, ids ascending. Null if there is no vocabulary, or
    // one that only the exact reader can judge.
    std::shared_ptr<vocabulary> tokens;
    std::vector<double> scores;  // of a Unigram model, finite
    // Of a BPE model, its merges, and the bytes of the value of model.merges.
    std::shared_ptr<const std::vector<bpe_merge>> merges;
    size_t merges_begin = 0, merges_end = 0;
};

// Finds model.vocab and reads it: {"piece": id, ...} of a WordPiece or BPE model, whose ids ascend and
// whose pieces are distinct, or [["piece", score], ...] of a Unigram model, where a piece's place is
// its id. The merges of a BPE model stand behind it: "left right" or ["left", "right"] each, the parts
// and the whole of them in the vocabulary.
// Nothing is guessed: of a value that is anything else, or not strict JSON, or of a model of another
// kind, there is no vocabulary. Outside the value only brackets and strings are looked at: whoever wants
// the rest of the file parses it with the value left out, which is valid exactly where the whole is.
json_vocabulary read_json_vocabulary(std::string_view file);

}  // namespace encoder_engine
