// A trie of pieces over characters, each node with the score of the piece that ends there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace encoder_engine {

// How it works: characters are numbered in the order of their code points. The child of a node by a
// character is at the node's base plus that number; the root's children are the first nodes. A step
// takes one character, not one byte, because nearly every step of a walk is a cache miss.
class piece_trie {
public:
    struct piece {
        const uint32_t* codes;
        size_t size;  // not 0
        int32_t id;
        double score;
    };
    struct node {
        int32_t base = 0;
        int32_t parent = -1;  // -1 where free
        double score = kNoPiece;
    };
    static constexpr double kNoPiece = -std::numeric_limits<double>::infinity();
    static constexpr int32_t kNone = -1;

    // `pieces` are in ascending order and distinct.
    explicit piece_trie(const std::vector<piece>& pieces);

    // The number of a character; 0, which has no child, for one that no piece contains.
    uint32_t number_of(uint32_t code) const {
        return code < kTableEnd ? table_[code] : astral_number(code);
    }
    // The root's child by a character's number.
    static int32_t first(uint32_t number) { return static_cast<int32_t>(number); }
    // The child of a node by a character's number, or kNone.
    int32_t child(int32_t place, uint32_t number) const {
        const int32_t next = nodes_[static_cast<size_t>(place)].base + static_cast<int32_t>(number);
        return nodes_[static_cast<size_t>(next)].parent == place ? next : kNone;
    }
    const node* nodes() const { return nodes_.data(); }
    // The id of the piece that ends at a node, or kNone.
    int32_t id_of(int32_t place) const { return ids_[static_cast<size_t>(place)]; }

private:
    static constexpr int32_t kRoot = -2;  // the parent of the first nodes
    struct builder;
    static constexpr uint32_t kTableEnd = 0x10000;

    struct numbered {
        uint32_t code, number;
    };

    uint32_t astral_number(uint32_t code) const;
    size_t number_characters(const std::vector<piece>& pieces);

    std::vector<uint32_t> table_;   // by code point below kTableEnd
    std::vector<numbered> astral_;  // ascending
    std::vector<node> nodes_;
    std::vector<int32_t> ids_;  // by node
};

}  // namespace encoder_engine
