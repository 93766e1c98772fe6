// What one thread remembers of words: the pieces of each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "text/bpe/model/merge_table.h"
#include "text/bpe/word_starts.h"
#include "text/words/short_word_cache.h"
#include "text/words/word_key.h"
#include "text/words/word_store.h"

namespace encoder_engine {

// How it works: all words of a stretch are looked up before any is written, so that no step waits for
// another. Words of few bytes and pieces lie in tables of fixed size, all others, and what no longer
// fits there, in a store. When that is full, everything is forgotten: text that repeats itself is not
// searched for what it displaced.
class known_words {
public:
    // The most pieces that find() writes, and that look_up() finds.
    static constexpr int kMaxPieces = word_store::kMaxPieces, kMaxShort = 6;

    // Of each word of a stretch: how many pieces it has, 0 if that takes another look ...
    uint8_t counts[word_starts::kBytes + 2 * word_starts::kPadding];
    // ... and these.
    alignas(16) int32_t pieces[kMaxShort * (word_starts::kBytes + 2 * word_starts::kPadding)];

    // Fills counts and pieces for the words of a stretch; 16 bytes must be readable behind its end.
    void look_up(const uint8_t* bytes, const word_starts& words) {
        for (int i = 0; i < words.count; i += kAtOnce) {
            look_up(bytes, words.places, i, std::min(i + kAtOnce, words.count));
        }
    }
    // Fetches what find() reads of a word that look_up() did not find.
    void prefetch(const uint8_t* word, int64_t size) const {
        if (size <= tiny_.kMaxBytes) short_.prefetch(word_key::read(word, size).hash);
    }
    // Writes the pieces of any word and returns how many there are; 0: not found.
    int find(const uint8_t* word, int64_t size, int32_t* out) {
        if (size > word_store::kMaxBytes) return 0;
        int count = 0;
        if (size <= tiny_.kMaxBytes) {
            const tiny_key key(word, static_cast<unsigned>(size));
            count = tiny_.find(key.parts, key.hash, out);
        }
        if (count == 0 && size <= word_key::kMaxSize) {
            const word_key key = word_key::read(word, size);
            count = short_.find(key.parts, key.hash, out);
        }
        return count > 0 ? count : store_.find(word_store::hash_of(word, size), word, size, out);
    }
    // Stores a word that find() does not find, unless it has too many bytes or pieces.
    void keep(const uint8_t* word, int64_t size, const int32_t* ids, int64_t count) {
        if (size > word_store::kMaxBytes || count > kMaxPieces) return;
        if (size <= tiny_.kMaxBytes && count <= tiny_.kMaxPieces) {
            const tiny_key key(word, static_cast<unsigned>(size));
            if (tiny_.insert(key.parts, key.hash, ids, count)) return;
        } else if (size <= word_key::kMaxSize && count <= kMaxShort) {
            const word_key key = word_key::read(word, size);
            if (short_.insert(key.parts, key.hash, ids, count)) return;
        }
        if (store_.is_full()) {
            tiny_.clear();
            short_.clear();
            store_.clear();
        }
        store_.insert(word_store::hash_of(word, size), word, size, ids, count);
    }

private:
    // A word of 1 to 8 bytes as a number; 8 bytes must be readable. A shift drops what is behind the
    // word, which does not begin with zeros. A longer word has a number too, that of another word
    // perhaps: look_up() writes longer words last.
    struct tiny_key {
        uint64_t parts[1];
        uint64_t hash;
        tiny_key() = default;
        tiny_key(const uint8_t* bytes, unsigned size) {
            std::memcpy(parts, bytes, sizeof parts);
            *parts <<= -8 * size & 63;
            hash = *parts * 0x9E3779B97F4A7C15ull;
        }
    };

    // Words whose places are asked for before the first is read.
    static constexpr int kAtOnce = 64;

    void look_up(const uint8_t* bytes, const uint16_t* places, int begin, int end) {
        tiny_key keys[kAtOnce];
        word_key longer_keys[kAtOnce];
        int longer[kAtOnce];
        int num_longer = 0;
        for (int i = begin; i < end; ++i) {
            const auto size = static_cast<unsigned>(places[i + 1] - places[i]);
            keys[i - begin] = tiny_key(bytes + places[i], size);
            tiny_.prefetch(keys[i - begin].hash);
            longer[num_longer] = i;
            num_longer += size > tiny_.kMaxBytes;
        }
        for (int place = 0; place < num_longer; ++place) {
            const int i = longer[place], size = places[i + 1] - places[i];
            longer_keys[place] = word_key::read(bytes + places[i], std::min(size, word_key::kMaxSize));
            short_.prefetch(longer_keys[place].hash);
        }
        for (int i = begin; i < end; ++i) {
            const tiny_key& key = keys[i - begin];
            counts[i] = static_cast<uint8_t>(tiny_.first(key.parts, key.hash, pieces + kMaxShort * i));
        }
        for (int place = 0; place < num_longer; ++place) {
            const int i = longer[place], size = places[i + 1] - places[i];
            const word_key& key = longer_keys[place];
            const int count = short_.first(key.parts, key.hash, pieces + kMaxShort * i);
            counts[i] = static_cast<uint8_t>(size <= word_key::kMaxSize ? count : 0);
            if (size > word_key::kMaxSize && size <= word_store::kMaxBytes) {
                store_.prefetch(word_store::hash_of(bytes + places[i], size));
            }
        }
    }

    static_assert(merge_table::kIdBits <= short_word_cache<1, 16>::kIdBits, "ids would be cut");

    short_word_cache<1, 16> tiny_;
    short_word_cache<2, 16> short_;
    word_store store_;
};

}  // namespace encoder_engine
