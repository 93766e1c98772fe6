// The merges of a file, which a model takes over.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "text/bpe/model/model.h"
#include "text/vocabulary.h"

namespace encoder_engine {

// Merges by the ids of a vocabulary, -1 for what it lacks. A model has them in its own table: once one is
// made of them, the list is made again when somebody asks for it.
class merge_list {
public:
    using merges_pointer = std::shared_ptr<const std::vector<bpe_merge>>;

    merge_list(std::shared_ptr<const vocabulary> tokens, merges_pointer merges)
        : tokens_(std::move(tokens)), merges_(std::move(merges)), size_(merges_->size()) {}

    const vocabulary& tokens() const { return *tokens_; }
    size_t size() const { return size_; }
    merges_pointer merges() const {
        return merges_ != nullptr ? merges_ : std::make_shared<std::vector<bpe_merge>>(model_->merges().list());
    }
    void leave_to(std::shared_ptr<const bpe_model> model) {
        model_ = std::move(model);
        merges_ = nullptr;
    }

private:
    std::shared_ptr<const vocabulary> tokens_;
    merges_pointer merges_;
    size_t size_;
    std::shared_ptr<const bpe_model> model_;
};

}  // namespace encoder_engine
