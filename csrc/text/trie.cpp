// Builds the double array: children of a node share one block of 256 units, placed first fit.
#include "text/trie.h"

#include <algorithm>
#include <array>

namespace encoder_engine {
namespace {

// Blocks older than this are not searched for room: they are nearly full (as in darts-clone, 2008).
constexpr size_t kOpenBlocks = 16;

}  // namespace

struct double_array_trie::builder {
    using keys = std::vector<std::pair<std::string_view, int32_t>>;

    struct block {
        std::array<uint64_t, 4> free{~0ull, ~0ull, ~0ull, ~0ull};
        int count = 256;
    };

    const keys& sorted;
    std::vector<unit>& units;
    std::vector<int32_t>& values;
    std::vector<block> blocks;

    // Keys [first, last) share the first `depth` bytes, which lead to `node`.
    struct range {
        size_t first, last, depth;
        int32_t node;
    };
    struct edge {
        uint8_t byte;
        size_t first, last;
    };

    void add_block() {
        blocks.emplace_back();
        units.resize(units.size() + 256);
        values.resize(values.size() + 256);
    }

    void take(int32_t at) {
        block& b = blocks[static_cast<size_t>(at) >> 8];
        b.free[at >> 6 & 3] &= ~(1ull << (at & 63));
        --b.count;
    }

    bool is_free(int32_t at) const {
        return blocks[static_cast<size_t>(at) >> 8].free[at >> 6 & 3] >> (at & 63) & 1;
    }

    // A base in block `index` at which every edge finds a free unit, or -1.
    int32_t find_base_in(size_t index, const std::vector<edge>& edges) const {
        for (int word = 0; word < 4; ++word) {
            for (uint64_t bits = blocks[index].free[word]; bits != 0; bits &= bits - 1) {
                const int slot = word << 6 | __builtin_ctzll(bits);
                const int32_t base = (static_cast<int32_t>(index << 8) | slot) ^ edges[0].byte;
                const bool fits = std::all_of(edges.begin() + 1, edges.end(), [&](const edge& e) {
                    return is_free(base ^ e.byte);
                });
                if (fits) return base;
            }
        }
        return -1;
    }

    // A base at which every edge finds a free unit.
    int32_t find_base(const std::vector<edge>& edges) {
        const size_t num_blocks = blocks.size();
        const size_t begin = num_blocks > kOpenBlocks ? num_blocks - kOpenBlocks : 0;
        for (size_t index = begin; index < num_blocks; ++index) {
            if (blocks[index].count < static_cast<int>(edges.size())) continue;
            const int32_t base = find_base_in(index, edges);
            if (base >= 0) return base;
        }
        add_block();
        return static_cast<int32_t>(num_blocks << 8);
    }

    void place(const range& r, std::vector<range>& todo, std::vector<edge>& edges) {
        size_t at = r.first;
        if (sorted[at].first.size() == r.depth) {
            values[r.node] = sorted[at++].second;
            units[r.node].base = kHasValue;
        }
        edges.clear();
        while (at < r.last) {
            const uint8_t byte = static_cast<uint8_t>(sorted[at].first[r.depth]);
            const size_t first = at;
            while (at < r.last && static_cast<uint8_t>(sorted[at].first[r.depth]) == byte) ++at;
            edges.push_back({byte, first, at});
        }
        if (edges.empty()) {
            // A leaf: any base whose 256 places never name this node as parent will do.
            units[r.node].base |= r.node & ~0xFF;
            return;
        }
        const int32_t base = find_base(edges);
        units[r.node].base |= base;
        for (const edge& e : edges) {
            const int32_t next = base ^ e.byte;
            units[next].parent = r.node;
            take(next);
            todo.push_back({e.first, e.last, r.depth + 1, next});
        }
    }
};

void double_array_trie::build(const std::vector<std::pair<std::string_view, int32_t>>& sorted_keys) {
    std::vector<unit> units;
    std::vector<int32_t> values;
    builder build{sorted_keys, units, values, {}};
    build.add_block();
    build.take(kRoot);
    if (!sorted_keys.empty()) {
        std::vector<builder::range> todo{{0, sorted_keys.size(), 0, kRoot}};
        std::vector<builder::edge> edges;
        while (!todo.empty()) {
            const builder::range next = todo.back();
            todo.pop_back();
            build.place(next, todo, edges);
        }
    }
    units.shrink_to_fit();
    values.shrink_to_fit();
    units_ = std::move(units);
    values_ = std::move(values);
}

int32_t double_array_trie::walk(int32_t node, const std::string& bytes) const {
    for (const char byte : bytes) {
        if (node < 0) return kNone;
        node = child(node, static_cast<uint8_t>(byte));
    }
    return node;
}

}  // namespace encoder_engine
