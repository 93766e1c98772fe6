// Tokens and their ids, looked up either way; models are built from it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/token_list.h"

namespace encoder_engine {

// How it works: texts are found in a hash table of 5 bytes a slot, two slots for three. A byte of the
// hash tells most other texts apart, so that a search reads one text. Sorted places and a binary search
// take 10 times as long for a text, and longer to build.
class vocabulary {
public:
    // Of equal texts the last counts.
    explicit vocabulary(token_list tokens);

    const token_list& tokens() const { return tokens_; }
    size_t num_distinct() const { return num_distinct_; }
    // The places of the tokens in ascending order of their bytes; of equal tokens, the last.
    std::vector<uint32_t> sorted() const;
    // The place of a text, or -1.
    int64_t find(std::string_view text) const { return find(text, hash(text)); }
    // The same in steps, for many texts: a hash, the memory fetched some time ahead, the place.
    static uint64_t hash(std::string_view text);
    void prefetch(uint64_t hash) const {
        __builtin_prefetch(&tags_[slot_of(hash)]);
        __builtin_prefetch(&places_[slot_of(hash)]);
    }
    int64_t find(std::string_view text, uint64_t hash) const;
    // The place of an id, or -1; ids must be in ascending order.
    int64_t find_id(int64_t id) const;
    // Whether each id is greater than the one before.
    bool ids_ascend() const;
    // Whether a vocab.txt with these bytes is this vocabulary: one token per line, ids from 0 on.
    // False where a carriage return ends a line.
    bool has_lines(std::string_view file) const;

private:
    static constexpr uint8_t kFree = 0;

    size_t slot_of(uint64_t hash) const { return static_cast<size_t>((hash >> 32) * tags_.size() >> 32); }
    static uint8_t tag_of(uint64_t hash) { return static_cast<uint8_t>(hash | 1); }
    size_t next(size_t slot) const { return slot + 1 == tags_.size() ? 0 : slot + 1; }
    // The slot of a text, or the free one where it would be.
    size_t search(std::string_view text, uint64_t hash) const;

    token_list tokens_;
    size_t num_distinct_ = 0;
    std::vector<uint8_t> tags_;
    std::vector<uint32_t> places_;
};

}  // namespace encoder_engine
