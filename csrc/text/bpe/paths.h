// The pieces that words most likely have, found for some words at a time.
#pragma once

#include <cstdint>
#include <cstring>

#include "text/bpe/model/model.h"

namespace encoder_engine {

// The longest token at a word's start, the longest one behind it, and so on: up to kMost of them.
struct bpe_path {
    static constexpr int kMost = 16;
    int size = 0;
    int32_t ids[kMost];
    uint16_t starts[kMost + 1] = {};  // of each, and the end of the last one
};

// How it works: a walk through the trie waits for memory at nearly every byte, and the next one waits
// for its end. Here the walks of all words take a step each in turn, so that they wait together. What
// the segmenter reads of the tokens and pairs that are found is on its way when it comes to them.
class bpe_paths {
public:
    static constexpr int kMostWords = 16, kMaxBytes = 255;

    void clear() { num_words_ = next_ = 0; }
    // Adds a word of 1 to kMaxBytes bytes, unless it may be there, to fewer than kMostWords; 8 bytes must be
    // readable. Its place names it; places ascend.
    void add(int place, const uint8_t* word, int64_t size) {
        uint64_t head;
        std::memcpy(&head, word, sizeof head);
        if (size < 8) head <<= 64 - 8 * size;
        bool there = false;
        for (int i = 0; i < num_words_; ++i) there |= heads_[i] == head && words_[i].size == size;
        if (there) return;
        heads_[num_words_] = head;
        places_[num_words_] = place;
        words_[num_words_] = {word, static_cast<uint16_t>(size)};
        ++num_words_;
    }
    // Finds the paths of all words; `memo` gives the address of what is remembered about a pair.
    template <typename Memo>
    void find(const bpe_model& model, Memo&& memo);
    // The path of a word, or nullptr. Words are asked for in the order of their places.
    const bpe_path* of(int place) {
        while (next_ < num_words_ && places_[next_] < place) ++next_;
        return next_ < num_words_ && places_[next_] == place ? &paths_[next_] : nullptr;
    }

private:
    struct word {
        const uint8_t* bytes;
        uint16_t size;
    };
    // Where a word's walk is: behind `at` bytes, at the node of a place, and the longest token so far.
    struct walk {
        uint32_t node;
        uint16_t at, best_end;
        int32_t best;
        uint8_t word;
    };

    int num_words_ = 0, next_ = 0;
    int places_[kMostWords];
    uint64_t heads_[kMostWords];
    word words_[kMostWords];
    bpe_path paths_[kMostWords];
};

template <typename Memo>
void bpe_paths::find(const bpe_model& model, Memo&& memo) {
    const byte_trie& trie = model.trie();
    const uint64_t root = trie.root();
    walk walks[kMostWords];
    const auto begin = [&](walk& w, uint16_t at) {
        w.node = trie.place(root, words_[w.word].bytes[at]);
        trie.prefetch(w.node);
        w.at = w.best_end = at;
        w.best = byte_trie::kNone;
    };
    for (int i = 0; i < num_words_; ++i) {
        paths_[i].size = 0;
        walks[i].word = static_cast<uint8_t>(i);
        begin(walks[i], 0);
    }
    for (int num_walks = num_words_; num_walks > 0;) {
        for (int i = 0; i < num_walks;) {
            walk& w = walks[i];
            const word& of = words_[w.word];
            const uint64_t node = trie.node(w.node);
            if (byte_trie::found(node, of.bytes[w.at])) {
                ++w.at;
                if (byte_trie::is_inner(node)) {
                    w.best = byte_trie::token(node);
                    w.best_end = w.at;
                }
                if (w.at < of.size) {
                    w.node = trie.place(node, of.bytes[w.at]);
                    trie.prefetch(w.node);
                    ++i;
                    continue;
                }
            }
            // The end of a token, or of the path.
            bpe_path& path = paths_[w.word];
            if (w.best >= 0) {
                model.prefetch(w.best);
                if (path.size > 0) {
                    const int32_t before = path.ids[path.size - 1];
                    __builtin_prefetch(memo(before, w.best));
                    model.merges().prefetch(before, w.best);
                }
                path.starts[path.size + 1] = w.best_end;
                path.ids[path.size++] = w.best;
            }
            if (w.best < 0 || w.best_end == of.size || path.size == bpe_path::kMost) {
                w = walks[--num_walks];
            } else {
                begin(w, w.best_end);
                ++i;
            }
        }
    }
}

}  // namespace encoder_engine
