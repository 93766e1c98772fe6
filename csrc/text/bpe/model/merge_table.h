// The merges of a BPE model, found by their two parts.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace encoder_engine {

// Two tokens become a third; the lower the rank, the earlier.
struct bpe_merge {
    int32_t left, right, merged;
};

// Tells of most pairs that they are no merge, from a bit in a table of 8 to 16 bits a merge: it stays in the
// second-level cache, where the merges themselves have no room.
class merge_filter {
public:
    explicit merge_filter(const std::vector<bpe_merge>& merges) {
        while (merges.size() * 8 > size_t{1} << (64 - shift_)) --shift_;
        bits_.resize((size_t{1} << (64 - shift_)) / 64);
        for (const bpe_merge& merge : merges) {
            const uint64_t at = place(merge.left, merge.right);
            bits_[at >> 6] |= 1ull << (at & 63);
        }
    }
    // False: the two are no merge.
    bool may_hold(int32_t left, int32_t right) const {
        const uint64_t at = place(left, right);
        return (bits_[at >> 6] >> (at & 63) & 1) != 0;
    }

private:
    uint64_t place(int32_t left, int32_t right) const {
        const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
        return key * 0x9E3779B97F4A7C15ull >> shift_;
    }

    int shift_ = 64 - 10;
    std::vector<uint64_t> bits_;
};

// An open hash table of words, two for three slots: left id (20 bits), right id (20), rank (24).
class merge_table {
public:
    static constexpr int kIdBits = 20, kRankBits = 24;
    static constexpr uint32_t kNone = ~0u;

    // Of equal pairs the last rank counts, as in the library; the others are listed as replaced.
    void build(const std::vector<bpe_merge>& merges) {
        constexpr size_t kAhead = 16;
        size_ = merges.size();
        slots_.assign(merges.size() * 3 / 2 + 1, kEmpty);
        first_ = merges.empty() ? 0 : merges[0].merged;
        counts_ = true;
        for (size_t i = 0; i < merges.size(); ++i) counts_ = counts_ && merges[i].merged == counted(i);
        if (!counts_) merged_.resize(merges.size());
        for (size_t i = 0; i < merges.size(); ++i) {
            if (i + kAhead < merges.size()) prefetch(merges[i + kAhead].left, merges[i + kAhead].right);
            const uint64_t key = key_of(merges[i].left, merges[i].right);
            size_t at = place(key);
            while (slots_[at] != kEmpty && slots_[at] >> kRankBits != key) at = next(at);
            if (slots_[at] != kEmpty) replaced_.emplace_back(rank_of(slots_[at]), merges[i]);
            slots_[at] = key << kRankBits | i;
            if (!counts_) merged_[i] = merges[i].merged;
        }
    }
    // The rank of the merge of two tokens, or kNone.
    uint32_t rank(int32_t left, int32_t right) const {
        const uint64_t key = key_of(left, right);
        for (size_t at = place(key);; at = next(at)) {
            const uint64_t slot = slots_[at];
            if (slot >> kRankBits == key) return rank_of(slot);
            if (slot == kEmpty) return kNone;
        }
    }
    void prefetch(int32_t left, int32_t right) const {
        __builtin_prefetch(&slots_[place(key_of(left, right))]);
    }
    int32_t merged(uint32_t rank) const { return counts_ ? counted(rank) : merged_[rank]; }
    const std::vector<std::pair<uint32_t, bpe_merge>>& replaced() const { return replaced_; }
    // All merges again, by their ranks.
    std::vector<bpe_merge> list() const {
        std::vector<bpe_merge> merges(size_);
        for (const auto& [rank, merge] : replaced_) merges[rank] = merge;
        for (const uint64_t slot : slots_) {
            if (slot == kEmpty) continue;
            const auto left = static_cast<int32_t>(slot >> (kIdBits + kRankBits));
            const auto right = static_cast<int32_t>(slot >> kRankBits & ((1u << kIdBits) - 1));
            merges[rank_of(slot)] = {left, right, merged(rank_of(slot))};
        }
        return merges;
    }

private:
    static constexpr uint64_t kEmpty = ~0ull;

    int32_t counted(size_t rank) const { return first_ + static_cast<int32_t>(rank); }
    static uint64_t key_of(int32_t left, int32_t right) {
        return static_cast<uint64_t>(left) << kIdBits | static_cast<uint64_t>(right);
    }
    static uint32_t rank_of(uint64_t slot) { return static_cast<uint32_t>(slot & ((1u << kRankBits) - 1)); }
    size_t place(uint64_t key) const {
        return static_cast<size_t>((key * 0x9E3779B97F4A7C15ull >> 32) * slots_.size() >> 32);
    }
    size_t next(size_t at) const { return at + 1 == slots_.size() ? 0 : at + 1; }

    std::vector<uint64_t> slots_;
    size_t size_ = 0;
    // Most files have their merges in the order of the ids, which count from the first result on.
    bool counts_ = true;
    int32_t first_ = 0;
    std::vector<int32_t> merged_;  // by rank, where they do not
    std::vector<std::pair<uint32_t, bpe_merge>> replaced_;
};

}  // namespace encoder_engine
