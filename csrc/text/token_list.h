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
        ids_.reserve(num_tokens);
    }
    // Appends a token. All texts together must stay below 2^32 bytes.
    void add(std::string_view text, int32_t id) {
        bytes_.append(text);
        end_text(id);
    }
    // Appends a token whose text comes in parts: append() each part, then end it.
    void append(const char* part, size_t size) { bytes_.append(part, size); }
    void end_text(int32_t id) {
        ends_.push_back(static_cast<uint32_t>(bytes_.size()));
        ids_.push_back(id);
    }

    size_t size() const { return ids_.size(); }
    bool empty() const { return ids_.empty(); }
    std::string_view text(size_t place) const {
        const size_t start = place == 0 ? 0 : ends_[place - 1];
        return {bytes_.data() + start, ends_[place] - start};
    }
    int32_t id(size_t place) const { return ids_[place]; }
    const std::vector<int32_t>& ids() const { return ids_; }
    // All texts, one after the other.
    const std::string& bytes() const { return bytes_; }

private:
    std::string bytes_;
    std::vector<uint32_t> ends_;
    std::vector<int32_t> ids_;
};

}  // namespace encoder_engine
