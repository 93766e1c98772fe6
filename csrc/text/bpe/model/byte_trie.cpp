// Places the children of each node at the first base that no other node has, 64 bases at a time.
#include "text/bpe/model/byte_trie.h"

#include <algorithm>

namespace encoder_engine {

struct byte_trie::builder {
    const token_list& tokens;
    const std::vector<sorted_text>& keys;
    std::vector<token_place>& places;
    std::vector<uint64_t> nodes;
    std::vector<uint64_t> used;        // a bit for each place that holds a node
    std::vector<uint64_t> used_bases;  // a bit for each base that a node has
    // Where the search begins: nodes of one child fill holes, the others need room.
    uint64_t first_single = 1, first_many = 1;
    uint64_t last = 0;

    // Keys [first, end) share their first `depth` bytes, which lead to the node at `place`. `shorter`
    // is the longest of them that ends above.
    struct range {
        uint32_t first, end, depth, place;
        int32_t shorter;
    };
    std::vector<range> todo;
    uint8_t labels[256];
    uint32_t firsts[257];

    // In steps: memory that is reserved and never written costs nothing.
    void grow(uint64_t place) {
        if (place + 1024 < nodes.size()) return;
        nodes.resize(nodes.size() + 8192, kNoLabel);
        used.resize(nodes.size() / 64 + 16);
        used_bases.resize(used.size());
    }
    // How many nodes the keys have: one for each byte that a key does not share with the key before.
    size_t count_nodes() const {
        size_t count = 1;
        for (size_t k = 0; k < keys.size(); ++k) count += keys[k].size - (k == 0 ? 0 : shared_with_last(k));
        return count;
    }
    size_t shared_with_last(size_t k) const {
        const uint64_t differs = keys[k].head ^ keys[k - 1].head;
        const size_t most = std::min(keys[k].size, keys[k - 1].size);
        if (differs != 0) return std::min<size_t>(most, static_cast<size_t>(__builtin_clzll(differs) / 8));
        const char* const text = tokens.text(keys[k].place).data();
        const char* const before = tokens.text(keys[k - 1].place).data();
        return static_cast<size_t>(std::mismatch(text, text + most, before).first - text);
    }
    static uint64_t bits_from(const std::vector<uint64_t>& bits, uint64_t at) {
        const uint64_t* const word = bits.data() + (at >> 6);
        return word[0] >> (at & 63) | word[1] << 1 << (63 - (at & 63));
    }
    static void set(std::vector<uint64_t>& bits, uint64_t at) { bits[at >> 6] |= 1ull << (at & 63); }

    uint8_t byte_of(uint32_t k, uint32_t depth) const {
        if (depth < 8) return static_cast<uint8_t>(keys[k].head >> (56 - 8 * depth));
        return static_cast<uint8_t>(tokens.text(keys[k].place)[depth]);
    }
    // The end of the keys from `at` on that have the same byte at `depth`: the step doubles, since
    // the first nodes have many.
    uint32_t end_of_byte(uint32_t at, const range& r) const {
        const uint8_t byte = byte_of(at, r.depth);
        uint32_t step = 1;
        while (at + step < r.end && byte_of(at + step, r.depth) == byte) step *= 2;
        uint32_t low = at + step / 2 + 1, high = std::min(at + step, r.end);
        while (low < high) {
            const uint32_t middle = low + (high - low) / 2;
            if (byte_of(middle, r.depth) == byte) low = middle + 1; else high = middle;
        }
        return high;
    }
    int list_children(const range& r, uint32_t at) {
        int count = 0;
        while (at < r.end) {
            labels[count] = byte_of(at, r.depth);
            firsts[count++] = at;
            at = end_of_byte(at, r);
        }
        firsts[count] = r.end;
        return count;
    }
    uint64_t find_base(int count) {
        uint64_t& from = count == 1 ? first_single : first_many;
        uint64_t base = std::max<uint64_t>(from, labels[0] + 1u) - labels[0];
        for (;; base += 64) {
            grow(base + 64 + 256);
            uint64_t taken = bits_from(used_bases, base);
            for (int i = 0; i < count && ~taken != 0; ++i) taken |= bits_from(used, base + labels[i]);
            if (~taken == 0) continue;
            base += static_cast<uint64_t>(__builtin_ctzll(~taken));
            break;
        }
        const uint64_t place = base + labels[0];
        if (count == 1) {
            from = place;
        } else if (place > from + 1024) {
            from = place - 512;
        }
        return base;
    }
    void put_token(uint32_t k, uint32_t place, int32_t shorter) {
        nodes[place] |= (static_cast<uint64_t>(tokens.id(keys[k].place)) + 1) << kTokenShift;
        places[k] = {place, shorter};
    }
    void put_child(uint64_t base, uint8_t label) {
        const uint64_t child = base + label;
        set(used, child);
        nodes[child] = static_cast<uint64_t>(label) << kLabelShift;
        last = std::max(last, child);
    }
    // The nodes of a single key: three in four of Qwen 2's.
    bool place_tail(const range& r) {
        constexpr uint32_t kAhead = 16;
        if (r.first + kAhead < keys.size() && keys[r.first + kAhead].size > 8) {
            __builtin_prefetch(tokens.text(keys[r.first + kAhead].place).data() + 8);
        }
        const sorted_text& key = keys[r.first];
        const std::string_view text = key.size > 8 ? tokens.text(key.place) : std::string_view();
        uint32_t place = r.place;
        for (uint32_t depth = r.depth; depth < key.size; ++depth) {
            const uint64_t byte = depth < 8 ? key.head >> (56 - 8 * depth) : static_cast<uint8_t>(text[depth]);
            labels[0] = static_cast<uint8_t>(byte);
            const uint64_t base = find_base(1);
            if (base + 1024 > kMaxNodes) return false;
            set(used_bases, base);
            nodes[place] |= base;
            put_child(base, labels[0]);
            place = static_cast<uint32_t>(base + labels[0]);
        }
        put_token(r.first, place, r.shorter);
        return true;
    }
    bool place_children(const range& r) {
        uint32_t at = r.first;
        int32_t shorter = r.shorter;
        if (at < r.end && keys[at].size == r.depth) {
            put_token(at, r.place, shorter);
            shorter = static_cast<int32_t>(at++);
        }
        const int count = list_children(r, at);
        if (count == 0) return true;
        const uint64_t base = find_base(count);
        if (base + 1024 > kMaxNodes) return false;
        set(used_bases, base);
        nodes[r.place] |= base;
        for (int i = count - 1; i >= 0; --i) {
            put_child(base, labels[i]);
            todo.push_back({firsts[i], firsts[i + 1], r.depth + 1, static_cast<uint32_t>(base + labels[i]), shorter});
        }
        return true;
    }
};

bool byte_trie::build(const token_list& tokens, const std::vector<sorted_text>& sorted,
                      std::vector<token_place>& places) {
    places.resize(sorted.size());
    builder b{tokens, sorted, places, {}, {}, {}, 1, 1, 0, {}, {}, {}};
    // A node in twelve stays free in Qwen 2's.
    b.nodes.reserve(b.count_nodes() * 9 / 8 + 16384);
    b.grow(0);
    builder::set(b.used, 0);
    b.todo.push_back({0, static_cast<uint32_t>(sorted.size()), 0, 0, kNone});
    while (!b.todo.empty()) {
        const builder::range next = b.todo.back();
        b.todo.pop_back();
        if (!(next.end - next.first == 1 ? b.place_tail(next) : b.place_children(next))) return false;
    }
    // Nodes without children lead behind the last one, where no place has a label.
    const uint64_t dead = b.last + 1;
    b.nodes.resize(dead + 256, kNoLabel);
    for (uint64_t& node : b.nodes) {
        if (base(node) == 0) node |= dead;
    }
    nodes_ = std::move(b.nodes);
    return true;
}

}  // namespace encoder_engine
