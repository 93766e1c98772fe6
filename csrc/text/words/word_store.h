// Words of many bytes or pieces, in memory that grows with them.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "common/pod_vector.h"
#include "text/words/word_key.h"

namespace encoder_engine {

// An open hash table of places in a row of records.
class word_store {
public:
    // The most bytes and pieces of a word.
    static constexpr int kMaxBytes = 255, kMaxPieces = 255;

    word_store() { clear(); }

    // A word's hash; 16 bytes must be readable.
    static uint64_t hash_of(const uint8_t* bytes, int64_t size) {
        if (size <= word_key::kMaxSize) return word_key::read(bytes, size).hash;
        uint64_t hash = 0;
        const auto mix = [&hash](const uint8_t* at) {
            uint64_t part;
            std::memcpy(&part, at, sizeof part);
            hash = ((hash << 29 | hash >> 35) ^ part) * 0x9E3779B97F4A7C15ull;
        };
        for (int64_t i = 0; i + 8 < size; i += 8) mix(bytes + i);
        mix(bytes + size - 8);
        return hash ^ hash >> 32;
    }
    void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash >> shift_]); }
    // Writes a word's pieces, of which there are up to kMaxPieces, and returns their number; 0: not
    // found.
    int find(uint64_t hash, const uint8_t* bytes, int64_t size, int32_t* out) const {
        size_t at = hash >> shift_;
        for (int probe = 0; probe < kMostProbes && slots_[at] != 0;
             ++probe, at = (at + 1) & (slots_.size() - 1)) {
            if ((slots_[at] ^ hash) >> 32 != 0) continue;
            const uint32_t* const record = records_.data() + static_cast<uint32_t>(slots_[at]);
            const uint32_t count = *record >> 16;
            if ((*record & 0xFFFF) != size) continue;
            if (std::memcmp(record + 1 + count, bytes, static_cast<size_t>(size)) != 0) continue;
            std::memcpy(out, record + 1, count * sizeof *out);
            return static_cast<int>(count);
        }
        return 0;
    }
    // Whether it should be cleared before another word.
    bool is_full() const { return records_.size() > kMostParts; }
    void clear() {
        slots_.assign(size_t{1} << kLeastBits, 0);
        shift_ = 64 - kLeastBits;
        count_ = 0;
        records_.clear();
        records_.append(0);  // a slot of 0 is empty
    }
    // Stores a word that find() does not find, unless too many others have its hash.
    void insert(uint64_t hash, const uint8_t* bytes, int64_t size, const int32_t* pieces, int64_t count) {
        const int64_t num_parts = 1 + count + (size + 3) / 4;
        // Memory first: without it the table stays as it is.
        records_.reserve_more(num_parts);
        if (2 * (count_ + 1) > slots_.size()) grow();
        if (!put(hash >> 32 << 32 | static_cast<uint64_t>(records_.size()))) return;
        ++count_;
        uint32_t* const record = records_.end();
        *record = static_cast<uint32_t>(size | count << 16);
        std::memcpy(record + 1, pieces, static_cast<size_t>(count) * sizeof *pieces);
        std::memcpy(record + 1 + count, bytes, static_cast<size_t>(size));
        records_.extend(num_parts);
    }

private:
    static constexpr int64_t kMostParts = 3 << 19;  // 6 MiB of records; with their slots, up to 17 MiB
    // Texts can be made whose words share a hash: a look-up must not walk all of them.
    static constexpr int kMostProbes = 64;
    static constexpr int kLeastBits = 10;

    void grow() {
        std::vector<uint64_t> slots(2 * slots_.size());
        slots.swap(slots_);
        --shift_;
        for (const uint64_t slot : slots) {
            if (slot != 0) put(slot);
        }
    }
    bool put(uint64_t slot) {
        size_t at = slot >> shift_;
        for (int probe = 0; probe < kMostProbes; ++probe, at = (at + 1) & (slots_.size() - 1)) {
            if (slots_[at] != 0) continue;
            slots_[at] = slot;
            return true;
        }
        return false;
    }

    std::vector<uint64_t> slots_;   // the upper half of a hash, and a record's place
    pod_vector<uint32_t> records_;  // size and number of pieces, the pieces, the bytes
    int shift_ = 0;
    size_t count_ = 0;
};

}  // namespace encoder_engine
