// A double-array trie over UTF-8 bytes that maps keys to non-negative numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace encoder_engine {

class double_array_trie {
public:
    static constexpr int32_t kRoot = 0;
    static constexpr int32_t kNone = -1;

    // Builds from distinct non-empty keys in ascending byte order, each with its value.
    void build(const std::vector<std::pair<std::string_view, int32_t>>& sorted_keys);

    // The child of `node` by one byte, or kNone.
    int32_t child(int32_t node, uint8_t byte) const {
        const int32_t next = (units_[node].base & ~kHasValue) ^ byte;
        return units_[next].parent == node ? next : kNone;
    }
    // Whether a key ends at `node`.
    bool has_value(int32_t node) const { return (units_[node].base & kHasValue) != 0; }
    // The value of the key that ends at `node`, or kNone.
    int32_t value(int32_t node) const { return has_value(node) ? values_[node] : kNone; }
    // The node that a whole string leads to, or kNone.
    int32_t walk(int32_t node, const std::string& bytes) const;
    // The trie's nodes, from which other layouts are made.
    int32_t num_nodes() const { return static_cast<int32_t>(units_.size()); }
    int32_t base(int32_t node) const { return units_[node].base & ~kHasValue; }
    int32_t parent(int32_t node) const { return units_[node].parent; }

private:
    static constexpr int32_t kHasValue = 1 << 30;

    // A walk reads units only; values are stored apart, for fewer cache lines.
    struct unit {
        int32_t base = 0;     // children lie at base ^ byte, inside one block of 256; and kHasValue
        int32_t parent = -1;  // -1 where free
    };
    struct builder;
    std::vector<unit> units_;
    std::vector<int32_t> values_;
};

}  // namespace encoder_engine
