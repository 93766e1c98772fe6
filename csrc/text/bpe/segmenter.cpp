// The search through tokens, and what is remembered about pairs.
#include "text/bpe/segmenter.h"

#include <cstring>

namespace encoder_engine {

int32_t bpe_segmenter::longest(const uint8_t* at, const uint8_t* end) {
    const auto room = end - at;
    if (walk_.size > 0 && walk_.size <= room && std::memcmp(at, walk_.at, static_cast<size_t>(walk_.size)) == 0) {
        return walk_.found;
    }
    const byte_trie& trie = model_.trie();
    uint64_t node = trie.root();
    int32_t best = byte_trie::kNone;
    for (int64_t i = 0; i < room; ++i) {
        node = trie.child(node, at[i]);
        if (!byte_trie::found(node, at[i])) {
            if (i + 1 >= kLongWalk) walk_ = {at, i + 1, best};
            break;
        }
        if (byte_trie::is_inner(node)) best = byte_trie::token(node);
    }
    return best;
}

int32_t bpe_segmenter::whole(const uint8_t* at, const uint8_t* end) const {
    const byte_trie& trie = model_.trie();
    uint64_t node = trie.root();
    for (; at < end; ++at) {
        node = trie.child(node, *at);
        if (!byte_trie::found(node, *at)) return byte_trie::kNone;
    }
    return byte_trie::token(node);
}

bool bpe_segmenter::merge_apart(int32_t left, int32_t right) {
    bpe_model::merging state;
    model_.split(left, state.symbols);
    model_.split(right, state.symbols);
    model_.merge(state);
    return state.symbols.size() == 2 && state.symbols[0] == left && state.symbols[1] == right;
}

bool bpe_segmenter::stays_apart(int32_t left, int32_t right) {
    const uint64_t key = key_of(left, right);
    uint64_t& known = memo_[memo_place(key)];
    if (known >> 1 == key) return (known & 1) != 0;
    bool undecided = false;
    bool apart = model_.stay_apart(left, right, undecided);
    if (undecided) apart = merge_apart(left, right);
    known = key << 1 | static_cast<uint64_t>(apart);
    return apart;
}

int64_t bpe_segmenter::put_unknown(const uint8_t* at, bool joins, pod_vector<bpe_piece>& out) const {
    const uint8_t* end = at;
    bpe_model::read_stored(end);
    const int64_t size = end - at;
    if (model_.rules().byte_fallback) {
        for (; at < end; ++at) {
            const uint8_t byte = *at == bpe_model::kSpaceByte ? uint8_t{' '} : *at;
            out.append({model_.byte_token(byte), 1});
        }
    } else if (joins && model_.rules().fuse_unknown) {
        out[out.size() - 1].size += static_cast<uint32_t>(size);
    } else {
        out.append({model_.rules().unknown, static_cast<uint32_t>(size)});
    }
    return size;
}

void bpe_segmenter::cut(const uint8_t* word, int64_t size, const bpe_path* path,
                        pod_vector<bpe_piece>& out) {
    static const bpe_path kNoPath{};
    if (model_.rules().ignore_merges) {
        const int32_t id = whole(word, word + size);
        if (id >= 0) return out.append({id, static_cast<uint32_t>(size)});
    }
    if (model_.rules().suffix.empty()) return search(word, size, path != nullptr ? *path : kNoPath, out);
    ended_.clear();
    ended_.append(word, size);
    ended_.append(bpe_model::kSuffixByte);
    search(ended_.data(), size + 1, kNoPath, out);
    out[out.size() - 1].size -= 1;
}

void bpe_segmenter::search(const uint8_t* word, int64_t size, const bpe_path& path,
                           pod_vector<bpe_piece>& out) {
    const uint8_t* const end = word + size;
    const bool characters = model_.rules().symbols == bpe_symbols::characters;
    dead_.clear();
    walk_.size = 0;
    int64_t run = out.size();  // merging began behind these pieces
    int64_t unknown_end = -1;  // behind the last unknown character
    int64_t at = 0;
    int step = 0;  // of the path
    const auto longest_at = [&](int64_t place) {
        while (step < path.size && path.starts[step] < place) ++step;
        return step < path.size && path.starts[step] == place ? path.ids[step] : longest(word + place, end);
    };
    int32_t next = longest_at(0);
    // Whether `next` is the longest token of its place: if there is none, the character is unknown.
    bool first = true;
    while (at < size) {
        if (first && next < 0 && characters) {
            at += put_unknown(word + at, at == unknown_end, out);
            unknown_end = at;
            run = out.size();
            if (at < size) next = longest_at(at);
            continue;
        }
        while (next >= 0) {
            const int64_t to = at + model_.token(next).stored();
            if (!is_dead(to) && (out.size() == run || stays_apart(out[out.size() - 1].id, next))) break;
            next = model_.token(next).shorter();
        }
        first = next >= 0;
        if (first) {
            const uint32_t taken = model_.token(next).stored();
            out.append({next, taken});
            at += taken;
            if (at < size) next = longest_at(at);
        } else {
            // No token fits behind the last one: note the place, and try a shorter one there.
            if (dead_.empty()) dead_.resize(static_cast<size_t>(size / 64 + 1));
            dead_[static_cast<size_t>(at >> 6)] |= 1ull << (at & 63);
            const bpe_piece last = out[out.size() - 1];
            out.truncate(out.size() - 1);
            at -= last.size;
            next = model_.token(last.id).shorter();
        }
    }
}

}  // namespace encoder_engine
