// Chooses paths other than the best one: by chance, or by rank.
#pragma once

#include <cstdint>
#include <limits>

#include "common/pod_vector.h"
#include "text/unigram/model.h"

namespace encoder_engine {

// Called for the path of each word of a text, in their order.
class path_chooser {
public:
    virtual ~path_chooser() = default;
    // Appends the pieces of a word; appends none while they do not matter yet.
    virtual void choose(const unigram_model& model, const uint32_t* word, int64_t size,
                        pod_vector<path_piece>& out) = 0;
    // Longer words are chosen in parts.
    virtual int64_t max_word() const { return std::numeric_limits<int64_t>::max(); }
};

}  // namespace encoder_engine
