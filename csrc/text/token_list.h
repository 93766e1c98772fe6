// Tokens with their ids, their texts one after the other in one block of memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace encoder_engine {

class token_list {
public:
    token_list() = default;
    token_list(std::initializer_list<std::pair<std::string_view, int32_t>> tokens) {
        for (const auto& [text, id] : tokens) add(text, id);
    }

    void reserve(size_t num_tokens, size_t num_bytes) {
        bytes_.reserve(num_bytes);
        ends_.reserve(num_tokens);
    }
    // Appends a token. All texts together must stay below 2^32 bytes.
    void add(std::string_view text, int32_t id) {
        bytes_.append(text);
        end_text(id);
    }
    // Appends a token whose text is written here, behind all others, before it is ended.
    std::string& open_text() { return bytes_; }
    void end_text(int32_t id) {
        if (counts_ && static_cast<size_t>(id) != ends_.size()) list_ids();
        ends_.push_back(static_cast<uint32_t>(bytes_.size()));
        if (!counts_) ids_.push_back(id);
    }
    // Gives back memory that further tokens would have taken.
    void shrink() {
        bytes_.shrink_to_fit();
        ends_.shrink_to_fit();
        ids_.shrink_to_fit();
    }

    size_t size() const { return ends_.size(); }
    bool empty() const { return ends_.empty(); }
    // Whether the ids count from 0 on.
    bool counts() const { return counts_; }
    std::string_view text(size_t place) const {
        const size_t start = place == 0 ? 0 : ends_[place - 1];
        return {bytes_.data() + start, ends_[place] - start};
    }
    int32_t id(size_t place) const { return counts_ ? static_cast<int32_t>(place) : ids_[place]; }
    // All texts, one after the other.
    const std::string& bytes() const { return bytes_; }

private:
    void list_ids() {
        for (size_t place = 0; place < ends_.size(); ++place) ids_.push_back(static_cast<int32_t>(place));
        counts_ = false;
    }

    std::string bytes_;
    std::vector<uint32_t> ends_;
    bool counts_ = true;
    std::vector<int32_t> ids_;  // unless they count from 0 on
};

}  // namespace encoder_engine
