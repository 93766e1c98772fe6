// The merges of a BPE model, found by their two parts.
#pragma once

#include <cstdint>
#include <vector>

namespace encoder_engine {

// Two tokens become a third; the lower the rank, the earlier.
struct bpe_merge {
    int32_t left, right, merged;
};

// An open hash table of words: left id (20 bits), right id (20), rank (24).
class merge_table {
public:
    static constexpr int kIdBits = 20, kRankBits = 24;
    static constexpr uint32_t kNone = ~0u;

    // Of equal pairs the last rank counts, as in the library.
    void build(const std::vector<bpe_merge>& merges) {
        int bits = 4;
        while ((size_t{1} << bits) < merges.size() * 3 / 2 + 1) ++bits;
        shift_ = 64 - bits;
        slots_.assign(size_t{1} << bits, kEmpty);
        for (uint32_t rank = 0; rank < merges.size(); ++rank) {
            const uint64_t key = key_of(merges[rank].left, merges[rank].right);
            size_t at = place(key);
            while (slots_[at] != kEmpty && slots_[at] >> kRankBits != key) at = next(at);
            slots_[at] = key << kRankBits | rank;
        }
    }
    // The rank of the merge of two tokens, or kNone.
    uint32_t rank(int32_t left, int32_t right) const {
        const uint64_t key = key_of(left, right);
        for (size_t at = place(key);; at = next(at)) {
            const uint64_t slot = slots_[at];
            if (slot >> kRankBits == key) return static_cast<uint32_t>(slot & ((1u << kRankBits) - 1));
            if (slot == kEmpty) return kNone;
        }
    }
    int64_t num_bytes() const { return static_cast<int64_t>(slots_.size() * sizeof slots_[0]); }

private:
    static constexpr uint64_t kEmpty = ~0ull;

    static uint64_t key_of(int32_t left, int32_t right) {
        return static_cast<uint64_t>(left) << kIdBits | static_cast<uint64_t>(right);
    }
    size_t place(uint64_t key) const { return key * 0x9E3779B97F4A7C15ull >> shift_; }
    size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }

    std::vector<uint64_t> slots_;
    int shift_ = 60;
};

}  // namespace encoder_engine
