// Cuts a word into the tokens that merging its symbols would give.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/pod_vector.h"
#include "common/zeroed_memory.h"
#include "text/bpe/model/model.h"
#include "text/bpe/paths.h"

namespace encoder_engine {

// A token and the bytes of the word that it takes.
struct bpe_piece {
    int32_t id;
    uint32_t size;
};

// How it works: takes the longest token at each place, if it stays apart from the token before; else
// the next shorter one that begins it; else gives the token before back. A place from which no token
// fits is noted and never tried again, so the time is linear in the word. The answers about pairs are
// remembered in a table of fixed size.
class bpe_segmenter {
public:
    explicit bpe_segmenter(const bpe_model& model)
        : model_(model),
          memo_(static_cast<uint64_t*>(allocate_zeros(sizeof(uint64_t) << kMemoBits))) {}

    // Appends the pieces of a word of `size` > 0 bytes; its path, where it is known, saves the search.
    void cut(const uint8_t* word, int64_t size, const bpe_path* path, pod_vector<bpe_piece>& out);
    // Finds the paths of words; a word that gets a suffix has none.
    void find(bpe_paths& paths) const {
        if (!model_.rules().suffix.empty()) return paths.clear();
        paths.find(model_, [this](int32_t left, int32_t right) { return &memo_[memo_place(key_of(left, right))]; });
    }
    // The bytes of buffers that grow with the words.
    int64_t num_bytes() const { return static_cast<int64_t>(8 * dead_.capacity()) + ended_.capacity(); }

private:
    static constexpr int kMemoBits = 15;

    static uint64_t key_of(int32_t left, int32_t right) {
        return (static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right)) + 1;
    }
    static uint64_t memo_place(uint64_t key) { return key * 0x9E3779B97F4A7C15ull >> (64 - kMemoBits); }

    void search(const uint8_t* word, int64_t size, const bpe_path& path, pod_vector<bpe_piece>& out);
    // The longest token that may stand inside a word and begins at a place, or -1.
    int32_t longest(const uint8_t* at, const uint8_t* end);
    // The token of all these bytes, or -1.
    int32_t whole(const uint8_t* at, const uint8_t* end) const;
    bool stays_apart(int32_t left, int32_t right);
    bool merge_apart(int32_t left, int32_t right);
    // Appends what stands for a character without a symbol; returns its bytes.
    int64_t put_unknown(const uint8_t* at, bool joins, pod_vector<bpe_piece>& out) const;
    bool is_dead(int64_t place) const {
        return !dead_.empty() && (dead_[static_cast<size_t>(place >> 6)] >> (place & 63) & 1) != 0;
    }

    // A walk that read many bytes of this word, all of which stand there still, and what it found. In
    // runs, where tokens are long and many are tried in vain, the next walks read the same.
    struct long_walk {
        const uint8_t* at;
        int64_t size;  // 0: none
        int32_t found;
    };
    static constexpr int64_t kLongWalk = 24;

    const bpe_model& model_;
    long_walk walk_{};
    std::unique_ptr<uint64_t[], free_memory> memo_;
    pod_vector<uint8_t> ended_;   // the word under way with its suffix
    std::vector<uint64_t> dead_;  // of the word under way; empty until a place fails
};

}  // namespace encoder_engine
