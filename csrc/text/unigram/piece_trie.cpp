// Numbers the characters, and finds places for the nodes: those with most children first.
#include "text/unigram/piece_trie.h"

#include <algorithm>

namespace encoder_engine {
namespace {

// Which places are taken, 64 to a word: long stretches are full.
class place_set {
public:
    size_t size() const { return size_; }
    // Places [place, place + 64), a bit each.
    uint64_t window(size_t place) const {
        const size_t word = place >> 6, shift = place & 63;
        const uint64_t low = word < words_.size() ? words_[word] >> shift : 0;
        if (shift == 0 || word + 1 >= words_.size()) return low;
        return low | words_[word + 1] << (64 - shift);
    }
    void add(size_t place) {
        size_ = std::max(size_, place + 1);
        words_.resize(std::max(words_.size(), (place >> 6) + 1));
        words_[place >> 6] |= uint64_t{1} << (place & 63);
    }
    // The first free place from `place` on; size() or more if all are taken.
    size_t next_free(size_t place) const {
        for (size_t word = place >> 6; word < words_.size(); ++word, place = word << 6) {
            const uint64_t free = ~words_[word] >> (place & 63);
            if (free != 0) return place + static_cast<size_t>(__builtin_ctzll(free));
        }
        return std::max(place, size_);
    }

private:
    std::vector<uint64_t> words_;
    size_t size_ = 0;
};

}  // namespace

struct piece_trie::builder {
    // A node without its place: children follow each other, in the order of their numbers. The pieces
    // [begin, end) lead through it, and the first of them ends here if it is `whole`.
    struct loose_node {
        uint32_t number;
        uint32_t begin, end;
        bool whole;
        int32_t first_child = 0, num_children = 0;
        int32_t place = 0, base = 0;
    };

    builder(const std::vector<piece>& all_pieces, const piece_trie& numbered)
        : pieces(all_pieces), trie(numbered) {}

    const std::vector<piece>& pieces;
    const piece_trie& trie;  // whose characters are numbered
    std::vector<node> nodes;
    std::vector<int32_t> ids;
    std::vector<loose_node> loose;
    place_set used;
    size_t first_free = 1, search_from = 1, num_searched = 0;

    // Makes all nodes level by level, a node's children behind each other.
    void grow() {
        // As many nodes as characters at most; what is never touched takes no memory.
        size_t num_codes = 1;
        for (const piece& p : pieces) num_codes += p.size;
        loose.reserve(num_codes);
        loose.push_back({0, 0, static_cast<uint32_t>(pieces.size()), false});
        size_t depth = 0, level_end = 1;
        for (size_t i = 0; i < loose.size(); ++i) {
            if (i == level_end) {
                ++depth;
                level_end = loose.size();
            }
            uint32_t at = loose[i].begin + loose[i].whole;
            const uint32_t end = loose[i].end;
            const size_t first = loose.size();
            while (at < end) {
                const uint32_t code = pieces[at].codes[depth];
                const uint32_t begin = at;
                do {
                    ++at;
                } while (at < end && pieces[at].codes[depth] == code);
                loose.push_back({trie.number_of(code), begin, at, pieces[begin].size == depth + 1});
            }
            loose[i].first_child = static_cast<int32_t>(first);
            loose[i].num_children = static_cast<int32_t>(loose.size() - first);
        }
    }

    // The nodes that have children, those with most first, in their order otherwise.
    std::vector<uint32_t> order_parents() const {
        int32_t most = 0;
        for (size_t i = 1; i < loose.size(); ++i) most = std::max(most, loose[i].num_children);
        std::vector<uint32_t> starts(static_cast<size_t>(most) + 1);
        for (size_t i = 1; i < loose.size(); ++i) {
            // Counted by those with more children, which come before.
            if (loose[i].num_children > 0) ++starts[static_cast<size_t>(most - loose[i].num_children) + 1];
        }
        for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
        std::vector<uint32_t> order(starts.back());
        for (size_t i = 1; i < loose.size(); ++i) {
            if (loose[i].num_children == 0) continue;
            order[starts[static_cast<size_t>(most - loose[i].num_children)]++] = static_cast<uint32_t>(i);
        }
        return order;
    }

    // A base from which children of all these numbers, in ascending order, find their places free;
    // 64 of them are tried at a time. Before `search_from` are hardly any for as many children.
    size_t find_base(const std::vector<uint32_t>& numbers) {
        if (numbers.size() != num_searched) search_from = first_free = used.next_free(first_free);
        num_searched = numbers.size();
        size_t base = std::max<size_t>(search_from, numbers[0]) - numbers[0];
        for (; base + numbers[0] < used.size(); base += 64) {
            uint64_t taken = 0;
            for (size_t i = 0; i < numbers.size() && ~taken != 0; ++i) {
                taken |= used.window(base + numbers[i]);
            }
            if (~taken == 0) continue;
            base += static_cast<size_t>(__builtin_ctzll(~taken));
            break;
        }
        search_from = used.next_free(std::max(search_from, (base + numbers[0]) & ~size_t{63}));
        return base;
    }

    // Finds places for the children of a node.
    void place_children(size_t index, std::vector<uint32_t>& numbers) {
        const loose_node n = loose[index];
        numbers.clear();
        for (int32_t i = 0; i < n.num_children; ++i) {
            numbers.push_back(loose[static_cast<size_t>(n.first_child + i)].number);
        }
        std::sort(numbers.begin(), numbers.end());
        const size_t base = find_base(numbers);
        loose[index].base = static_cast<int32_t>(base);
        for (int32_t i = 0; i < n.num_children; ++i) {
            loose_node& child = loose[static_cast<size_t>(n.first_child + i)];
            child.place = static_cast<int32_t>(base + child.number);
            used.add(base + child.number);
        }
    }

    void place_all(size_t num_characters) {
        for (size_t place = 0; place <= num_characters; ++place) used.add(place);
        const loose_node root = loose[0];
        for (int32_t i = 0; i < root.num_children; ++i) {
            loose_node& child = loose[static_cast<size_t>(root.first_child + i)];
            child.place = static_cast<int32_t>(child.number);
        }
        std::vector<uint32_t> numbers;
        for (const uint32_t index : order_parents()) place_children(index, numbers);
        // A walk may look behind the last node.
        const size_t size = used.size() + num_characters + 1;
        nodes.resize(size);
        ids.resize(size, kNone);
        for (const loose_node& parent : loose) write_children(parent);
    }

    // Writes the children of a node where they belong.
    void write_children(const loose_node& parent) {
        for (int32_t i = 0; i < parent.num_children; ++i) {
            const loose_node& child = loose[static_cast<size_t>(parent.first_child + i)];
            const auto place = static_cast<size_t>(child.place);
            // The number 0 leads to node 0, from which nothing may lead on.
            nodes[place].parent = &parent == loose.data() ? kRoot : parent.place;
            nodes[place].base = child.base;
            if (!child.whole) continue;
            nodes[place].score = pieces[child.begin].score;
            ids[place] = pieces[child.begin].id;
        }
    }
};

piece_trie::piece_trie(const std::vector<piece>& pieces) {
    const size_t num_characters = number_characters(pieces);
    builder build(pieces, *this);
    build.grow();
    build.place_all(num_characters);
    nodes_ = std::move(build.nodes);
    ids_ = std::move(build.ids);
}

size_t piece_trie::number_characters(const std::vector<piece>& pieces) {
    std::vector<bool> known(0x110000);
    for (const piece& p : pieces) {
        for (size_t i = 0; i < p.size; ++i) known[p.codes[i]] = true;
    }
    // In the order of their codes: a node's children are mostly of one script, and lie close together.
    std::vector<uint32_t> codes;
    for (uint32_t code = 0; code < known.size(); ++code) {
        if (known[code]) codes.push_back(code);
    }
    std::vector<uint32_t> table(kTableEnd);
    std::vector<numbered> astral;
    for (size_t i = 0; i < codes.size(); ++i) {
        const auto number = static_cast<uint32_t>(i + 1);
        if (codes[i] < kTableEnd) {
            table[codes[i]] = number;
        } else {
            astral.push_back({codes[i], number});
        }
    }
    table_ = std::move(table);
    astral_ = std::move(astral);
    return codes.size();
}

uint32_t piece_trie::astral_number(uint32_t code) const {
    const numbered* end = astral_.data() + astral_.size();
    const numbered* found =
        std::lower_bound(astral_.data(), end, code,
                         [](const numbered& entry, uint32_t wanted) { return entry.code < wanted; });
    return found != end && found->code == code ? found->number : 0;
}

}  // namespace encoder_engine
