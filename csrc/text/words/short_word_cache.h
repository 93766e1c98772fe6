// A cache of short words of few pieces, each with a place of its own in a cache line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "common/zeroed_memory.h"

namespace encoder_engine {

// A cache of words of up to 8 * kParts bytes and 3 * kParts pieces, whose ids are below 2^20. Words are
// not all zeros, and keys tell them apart. Most words lie at the place that their hash names, where
// first() looks without a branch: in running text it is often mispredicted which words are short, or
// known. Others lie in the same cache line, and change places when they are met.
template <int kParts, int kBits>
class short_word_cache {
public:
    static constexpr int kMaxPieces = 3 * kParts, kMaxBytes = 8 * kParts, kIdBits = 20;

    // A table of 1 MiB takes the 2 MiB of a huge page: in small pages, each was read first and written later, which
    // took two page faults.
    short_word_cache() : slots_(static_cast<slot*>(allocate_zeros(std::max(kHugePage, sizeof(slot) << kBits)))) {}

    void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> (64 - kBits)]); }
    // Writes kMaxPieces values to `out`, and returns how many of them are the word's pieces, if it lies
    // at its own place; 0: it does not.
    int first(const uint64_t (&parts)[kParts], uint64_t hash, int32_t* out) const {
        return slots_[hash >> (64 - kBits)].read(parts, out);
    }
    // The same wherever the word lies, which is its own place from then on; 0: it is not known.
    int find(const uint64_t (&parts)[kParts], uint64_t hash, int32_t* out) {
        slot& own = slots_[hash >> (64 - kBits)];
        for (size_t i = 0; i < kWays; ++i) {
            slot& other = way(hash, i);
            const int count = other.read(parts, out);
            if (count == 0) continue;
            std::swap(own, other);
            return count;
        }
        return 0;
    }
    // Stores a word of 1 to kMaxPieces pieces at its own place, from where another moves on; returns
    // whether there was room in the line.
    bool insert(const uint64_t (&parts)[kParts], uint64_t hash, const int32_t* pieces, int64_t count) {
        size_t free = 0;
        while (way(hash, free).pieces[kParts - 1] != 0) {
            if (++free == kWays) return false;
        }
        slot& own = way(hash, 0);
        way(hash, free) = own;
        std::memcpy(own.parts, parts, sizeof parts);
        std::memset(own.pieces, 0, sizeof own.pieces);
        for (int64_t i = 0; i < count; ++i) own.pieces[i / 3] |= static_cast<uint64_t>(pieces[i]) << (i % 3 * kIdBits);
        own.pieces[kParts - 1] |= static_cast<uint64_t>(count) << kCountShift;
        return true;
    }
    void clear() { std::memset(static_cast<void*>(slots_.get()), 0, sizeof(slot) << kBits); }

private:
    static constexpr int kCountShift = 3 * kIdBits;
    static constexpr size_t kHugePage = size_t{2} << 20;
    static constexpr uint64_t kId = (1ull << kIdBits) - 1;

    struct slot {
        uint64_t parts[kParts];
        uint64_t pieces[kParts];  // three ids each, the count in the top bits

        int read(const uint64_t (&key)[kParts], int32_t* out) const {
            uint64_t different = 0;
            for (int i = 0; i < kParts; ++i) different |= parts[i] ^ key[i];
            for (int i = 0; i < kParts; ++i) {
                const uint64_t two = (pieces[i] & kId) | (pieces[i] << (32 - kIdBits) & kId << 32);
                std::memcpy(out + 3 * i, &two, sizeof two);
                out[3 * i + 2] = static_cast<int32_t>(pieces[i] >> 2 * kIdBits & kId);
            }
            // Computed, for a compiler would branch.
            const uint64_t none = (different | (0 - different)) >> 63;
            return static_cast<int>(pieces[kParts - 1] >> kCountShift & (none - 1));
        }
    };
    static constexpr size_t kWays = 64 / sizeof(slot);

    slot& way(uint64_t hash, size_t i) const {
        return slots_[(hash >> (64 - kBits)) ^ i];
    }

    std::unique_ptr<slot[], free_memory> slots_;
};

}  // namespace encoder_engine
