// A double-array trie over the bytes of BPE tokens: eight bytes a node.
#pragma once

#include <cstdint>
#include <vector>

#include "text/sorted_texts.h"
#include "text/token_list.h"

namespace encoder_engine {

// How it works: the child of a node by a byte lies at the node's base plus that byte, and bears the
// byte as its label. No two nodes share a base, so the label alone tells whose child a node is, and
// a step reads one word. Leaves share a base whose places bear no label.
class byte_trie {
public:
    static constexpr int32_t kNone = -1;
    static constexpr uint64_t kMaxNodes = 1u << 27;

    // Of each token, in the order of the sorted ones: the place of its node, and the longest other token
    // that begins it, as a place in that order, or kNone.
    struct token_place {
        uint32_t node;
        int32_t shorter;
    };
    // Builds from tokens, `sorted` by their distinct bytes, none empty. None may stand inside a word
    // before set_inner(). Returns false if there are too many nodes.
    bool build(const token_list& tokens, const std::vector<sorted_text>& sorted,
               std::vector<token_place>& places);
    // Lets the token of a node stand inside words, not only for the whole of one.
    void set_inner(const token_place& place) { nodes_[place.node] |= kInner; }
    // Takes the token of a node away; the node stays.
    void remove(const token_place& place) { nodes_[place.node] &= ~(kTokenMask << kTokenShift); }

    uint64_t root() const { return nodes_[0]; }
    // The child of a node by a byte; found() says whether there is one.
    uint64_t child(uint64_t node, uint8_t byte) const { return nodes_[base(node) + byte]; }
    // The same in two steps, with a time between them in which the place is fetched.
    uint32_t place(uint64_t node, uint8_t byte) const { return static_cast<uint32_t>(base(node) + byte); }
    void prefetch(uint32_t place) const { __builtin_prefetch(&nodes_[place]); }
    uint64_t node(uint32_t place) const { return nodes_[place]; }
    static bool found(uint64_t node, uint8_t byte) { return label(node) == byte; }
    // The token that ends at a node, or kNone.
    static int32_t token(uint64_t node) {
        return static_cast<int32_t>(node >> kTokenShift & kTokenMask) - 1;
    }
    // Whether that token may stand inside a word.
    static bool is_inner(uint64_t node) { return (node & kInner) != 0; }

    int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size()); }

private:
    // base | label << 27 | (id + 1) << 36 | inner << 63
    static constexpr int kLabelShift = 27, kTokenShift = 36;
    static constexpr uint64_t kBaseMask = (1ull << kLabelShift) - 1;
    static constexpr uint64_t kTokenMask = (1ull << 27) - 1;
    static constexpr uint64_t kInner = 1ull << 63;
    static constexpr uint64_t kNoLabel = 256ull << kLabelShift;
    static uint64_t base(uint64_t node) { return node & kBaseMask; }
    static uint64_t label(uint64_t node) { return node >> kLabelShift & 511; }

    struct builder;
    std::vector<uint64_t> nodes_;
};

}  // namespace encoder_engine
