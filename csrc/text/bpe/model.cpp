// Reads tokens and merges, and works out levels from the shortest tokens to the longest.
#include "text/bpe/model.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <queue>
#include <tuple>

#include "text/text_view.h"

namespace encoder_engine {
namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;

uint64_t hash_bytes(uint64_t hash, std::string_view text) {
    size_t at = 0;
    for (; at + 8 <= text.size(); at += 8) {
        uint64_t part;
        std::memcpy(&part, text.data() + at, 8);
        hash = (hash ^ part) * kMultiplier;
        hash ^= hash >> 29;
    }
    uint64_t part = 0;
    std::memcpy(&part, text.data() + at, text.size() - at);
    hash = (hash ^ part ^ static_cast<uint64_t>(text.size() - at) << 56) * kMultiplier;
    return hash ^ hash >> 29;
}

// Finds tokens by their text: 20 times as fast as a binary search, for three look-ups a merge.
class token_index {
public:
    explicit token_index(const vocabulary& tokens) : tokens_(tokens.tokens()) {
        int bits = 4;
        while ((size_t{1} << bits) < 2 * tokens.sorted().size()) ++bits;
        shift_ = 64 - bits;
        slots_.resize(size_t{1} << bits);
        for (const uint32_t place : tokens.sorted()) {
            const uint64_t hash = hash_bytes(0, tokens_.text(place));
            size_t at = hash >> shift_;
            while (slots_[at].place != kFree) at = next(at);
            slots_[at] = {static_cast<uint32_t>(hash), place};
        }
    }
    // The id of a text, or -1.
    int32_t find(std::string_view text) const {
        const uint64_t hash = hash_bytes(0, text);
        for (size_t at = hash >> shift_; slots_[at].place != kFree; at = next(at)) {
            const slot& s = slots_[at];
            if (s.tag == static_cast<uint32_t>(hash) && tokens_.text(s.place) == text) {
                return tokens_.id(s.place);
            }
        }
        return -1;
    }

private:
    static constexpr uint32_t kFree = ~0u;
    struct slot {
        uint32_t tag = 0, place = kFree;
    };
    size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }

    const token_list& tokens_;
    std::vector<slot> slots_;
    int shift_ = 60;
};

// The byte that a letter of the byte-level alphabet stands for, or -1: printable bytes stand for
// themselves, the others are numbered from U+0100 on.
int byte_of_letter(uint32_t code) {
    static const auto kOthers = [] {
        std::array<uint8_t, 68> out{};
        size_t count = 0;
        for (int byte = 0; byte < 256; ++byte) {
            if (byte < 0x21 || (byte >= 0x7F && byte < 0xA1) || byte == 0xAD) {
                out[count++] = static_cast<uint8_t>(byte);
            }
        }
        return out;
    }();
    if (code >= 0x100) return code - 0x100 < kOthers.size() ? kOthers[code - 0x100] : -1;
    const bool printable = code >= 0x21 && !(code >= 0x7F && code < 0xA1) && code != 0xAD;
    return printable ? static_cast<int>(code) : -1;
}

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// The bytes that text in UTF-8 can hold.
bool occurs(int byte) { return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4); }

}  // namespace

bpe_model::bpe_model(const vocabulary& tokens, const token_list& merges, bpe_rules rules)
    : rules_(std::move(rules)), byte_tokens_(256, -1), last_byte_tokens_(256, -1) {
    if (!read_tokens(tokens) || !read_merges(tokens, merges) || !find_symbols()) return;
    find_levels();
    build_trie();
}

bool bpe_model::fail(bpe_refusal::kind why, int64_t place) {
    refusal_ = {why, place};
    return false;
}

// Writes a token's bytes; false if it has letters that stand for none.
bool bpe_model::decode(std::string_view text, std::string& out, bool& ends) const {
    ends = !rules_.suffix.empty() && text.size() > rules_.suffix.size() && ends_with(text, rules_.suffix);
    if (ends) text.remove_suffix(rules_.suffix.size());
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + text.size();
    while (at < end) {
        const uint8_t* const from = at;
        const uint32_t code = read_utf8(at);
        if (rules_.symbols == bpe_symbols::bytes) {
            const int byte = byte_of_letter(code);
            // Text never holds such a token; one of its bytes would be taken for the suffix.
            if (byte < 0 || !occurs(byte)) return false;
            out.push_back(static_cast<char>(byte));
        } else if (code == kMark || code == ' ') {
            out.push_back(static_cast<char>(code == ' ' ? kSpaceByte : kMarkByte));
        } else {
            out.append(from, at);
        }
    }
    if (ends) out.push_back(static_cast<char>(kSuffixByte));
    return true;
}

bool bpe_model::read_tokens(const vocabulary& tokens) {
    const token_list& list = tokens.tokens();
    int32_t largest = -1;
    for (const int32_t id : list.ids()) largest = std::max(largest, id);
    if (largest >= 1 << merge_table::kIdBits) return fail(bpe_refusal::too_large, largest);
    records_.resize(static_cast<size_t>(largest) + 1);
    starts_.resize(records_.size());
    bytes_.reserve(list.bytes().size() + list.size());
    for (const uint32_t place : tokens.sorted()) {
        const auto id = static_cast<size_t>(list.id(place));
        const size_t start = bytes_.size();
        bool ends = false;
        if (!decode(list.text(place), bytes_, ends)) {
            bytes_.resize(start);
            continue;
        }
        starts_[id] = static_cast<uint32_t>(start);
        records_[id].ends = ends;
        records_[id].size = static_cast<uint32_t>(bytes_.size() - start) - ends;
    }
    return true;
}

bool bpe_model::check_merge(const token_list& merges, int64_t rank, const bpe_merge& merge) {
    const auto place = static_cast<size_t>(2 * rank);
    if (merge.left < 0 || merge.right < 0) return fail(bpe_refusal::missing_part, rank);
    if (merge.merged < 0) return fail(bpe_refusal::missing_result, rank);
    if (!rules_.suffix.empty()) {
        // Only the last symbol has the suffix: no letters may be taken for it.
        const bool left = ends_with(merges.text(place), rules_.suffix);
        const bool right = ends_with(merges.text(place + 1), rules_.suffix);
        const bool whole = records_[static_cast<size_t>(merge.merged)].ends;
        if (left || right != whole || merges.text(place + 1) == rules_.suffix) {
            return fail(bpe_refusal::suffix_inside, rank);
        }
    }
    if (rules_.symbols == bpe_symbols::bytes) return true;
    for (const int32_t id : {merge.left, merge.right, merge.merged}) {
        const bool byte = std::find(byte_tokens_.begin(), byte_tokens_.end(), id) != byte_tokens_.end();
        if (id == rules_.unknown || (rules_.byte_fallback && byte)) {
            return fail(bpe_refusal::special_merge, rank);
        }
    }
    return true;
}

bool bpe_model::read_merges(const vocabulary& tokens, const token_list& merges) {
    const token_index index(tokens);
    if (rules_.byte_fallback) {
        char name[] = "<0x00>";
        for (int byte = 0; byte < 256; ++byte) {
            name[3] = "0123456789ABCDEF"[byte >> 4];
            name[4] = "0123456789ABCDEF"[byte & 15];
            const int32_t id = index.find(name);
            if (id < 0) return fail(bpe_refusal::missing_symbol, byte);
            byte_tokens_[static_cast<size_t>(byte)] = id;
        }
    }
    const auto count = static_cast<int64_t>(merges.size() / 2);
    if (count >= 1 << merge_table::kRankBits) return fail(bpe_refusal::too_large, count);
    merges_.reserve(static_cast<size_t>(count));
    std::string whole;
    for (int64_t rank = 0; rank < count; ++rank) {
        const std::string_view left = merges.text(static_cast<size_t>(2 * rank));
        const std::string_view right = merges.text(static_cast<size_t>(2 * rank + 1));
        whole.assign(left).append(right);
        const bpe_merge merge{index.find(left), index.find(right), index.find(whole)};
        if (!check_merge(merges, rank, merge)) return false;
        merges_.push_back(merge);
    }
    pairs_.build(merges_);
    return true;
}

bool bpe_model::find_symbols() {
    const bool by_bytes = rules_.symbols == bpe_symbols::bytes;
    for (size_t id = 0; id < records_.size(); ++id) {
        token_record& record = records_[id];
        if (record.size == 0) continue;
        const auto* at = reinterpret_cast<const uint8_t*>(bytes_.data()) + starts_[id];
        if (by_bytes) {
            record.made = record.size == 1;
            if (!record.made) continue;
            (record.ends ? last_byte_tokens_ : byte_tokens_)[*at] = static_cast<int32_t>(id);
        } else {
            const uint8_t* end = at;
            const uint32_t code = read_stored(end);
            record.made = end == at + record.size && static_cast<int32_t>(id) != rules_.unknown;
            if (record.made) characters_.push_back({code, static_cast<int32_t>(id)});
        }
    }
    std::sort(characters_.begin(), characters_.end());
    if (rules_.byte_fallback) {
        if (character_token(kMarkByte) < 0) return fail(bpe_refusal::missing_symbol, kMark);
        // Such a token stands for a byte of its character.
        for (const int32_t id : byte_tokens_) records_[static_cast<size_t>(id)].size = 1;
    }
    for (int byte = 0; by_bytes && byte < 256; ++byte) {
        const auto at = static_cast<size_t>(byte);
        const bool lacks_last = !rules_.suffix.empty() && last_byte_tokens_[at] < 0;
        if (occurs(byte) && (byte_tokens_[at] < 0 || lacks_last)) {
            return fail(bpe_refusal::missing_symbol, byte);
        }
    }
    return true;
}

bool bpe_model::stay_apart(int32_t left, int32_t right, bool& undecided) const {
    // The levels at which `left` and `right` are used up; at first, never.
    uint32_t left_until = ~0u, right_until = ~0u;
    for (;;) {
        const token_record& a = token(left);
        const token_record& b = token(right);
        const uint32_t rank = pairs_.rank(left, right);
        if (rank != merge_table::kNone) {
            const uint32_t due = std::max({a.level, b.level, rank + 1});
            const uint32_t until = std::min(left_until, right_until);
            if (due < until) return false;
            undecided = undecided || due == until;
        }
        if (undecided || (a.level == 0 && b.level == 0)) return true;
        if (a.level == b.level) {
            undecided = true;
            return true;
        }
        if (a.level > b.level) {
            left_until = a.level;
            left = a.right;
        } else {
            right_until = b.level;
            right = b.left;
        }
    }
}

// Marks the result of a merge as made if merging its bytes ends with this merge.
bool bpe_model::form(uint32_t rank, bool& undecided) {
    const bpe_merge& merge = merges_[rank];
    int32_t left = merge.left, right = merge.right;
    const uint32_t top = std::max({token(left).level, token(right).level, rank + 1});
    uint32_t left_until = top, right_until = top;
    for (bool first = true;; first = false) {
        const token_record& a = token(left);
        const token_record& b = token(right);
        const uint32_t across = first ? merge_table::kNone : pairs_.rank(left, right);
        if (across != merge_table::kNone) {
            const uint32_t due = std::max({a.level, b.level, across + 1});
            const uint32_t until = std::min(left_until, right_until);
            if (due < until) return false;
            undecided = undecided || due == until;
        }
        if (a.level == 0 && b.level == 0) break;
        undecided = undecided || a.level == b.level;
        if (undecided) return false;
        if (a.level > b.level) {
            left_until = a.level;
            left = a.right;
        } else {
            right_until = b.level;
            right = b.left;
        }
    }
    if (undecided) return false;
    token_record& record = records_[static_cast<size_t>(merge.merged)];
    record.made = true;
    record.level = top;
    record.left = merge.left;
    record.right = merge.right;
    return true;
}

void bpe_model::form_by_merging(int32_t id) {
    merging state;
    if (!split(id, state.symbols)) return;
    merge(state);
    token_record& record = records_[static_cast<size_t>(id)];
    record.made = state.symbols.size() == 1 && state.symbols[0] == id;
    if (!record.made) return;
    record.level = state.level;
    record.left = state.last.left;
    record.right = state.last.right;
}

void bpe_model::find_levels() {
    // In the order of the results' sizes: the parts of a merge are done before it.
    uint32_t longest = 0;
    for (const bpe_merge& merge : merges_) longest = std::max(longest, token(merge.merged).stored());
    std::vector<uint32_t> starts(longest + 2), order(merges_.size());
    for (const bpe_merge& merge : merges_) ++starts[token(merge.merged).stored() + 1];
    for (uint32_t size = 0; size <= longest; ++size) starts[size + 1] += starts[size];
    for (uint32_t rank = 0; rank < merges_.size(); ++rank) {
        order[starts[token(merges_[rank].merged).stored()]++] = rank;
    }
    constexpr size_t kAhead = 16;
    for (size_t i = 0; i < order.size(); ++i) {
        if (i + kAhead < order.size()) {
            const bpe_merge& later = merges_[order[i + kAhead]];
            __builtin_prefetch(&token(later.left));
            __builtin_prefetch(&token(later.right));
            __builtin_prefetch(&token(later.merged));
        }
        const uint32_t rank = order[i];
        const bpe_merge& merge = merges_[rank];
        if (token(merge.merged).made || token(merge.merged).size == 0) continue;
        if (!token(merge.left).made || !token(merge.right).made) continue;
        // A later merge of the same parts has replaced this one.
        if (pairs_.rank(merge.left, merge.right) != rank) continue;
        bool undecided = false;
        form(rank, undecided);
        if (undecided) form_by_merging(merge.merged);
    }
}

bool bpe_model::build_trie() {
    token_list stored;
    stored.reserve(records_.size(), bytes_.size());
    for (size_t id = 0; id < records_.size(); ++id) {
        const token_record& record = records_[id];
        if (record.size == 0 || !(record.made || rules_.ignore_merges)) continue;
        stored.add(bytes_of(static_cast<int32_t>(id)), static_cast<int32_t>(id));
    }
    const vocabulary ordered(std::move(stored));
    std::vector<byte_trie::key> keys;
    keys.reserve(ordered.sorted().size());
    std::vector<int32_t> prefixes;  // tokens that begin the one under way, each longer than the last
    for (const uint32_t place : ordered.sorted()) {
        const std::string_view text = ordered.tokens().text(place);
        const int32_t id = ordered.tokens().id(place);
        token_record& record = records_[static_cast<size_t>(id)];
        keys.push_back({text, id, record.made});
        const auto begins = [&](int32_t other) { return text.substr(0, token(other).stored()) == bytes_of(other); };
        while (!prefixes.empty() && !begins(prefixes.back())) prefixes.pop_back();
        if (!prefixes.empty()) record.shorter = prefixes.back();
        if (record.made) prefixes.push_back(id);
        if (rules_.symbols == bpe_symbols::bytes || !record.made) continue;
        for (size_t i = 1; i < text.size() && marks_begin_; ++i) {
            marks_begin_ = !(text[i] == kMarkByte && text[i - 1] != kMarkByte);
        }
    }
    return trie_.build(keys) || fail(bpe_refusal::too_large, static_cast<int64_t>(keys.size()));
}

int32_t bpe_model::character_token(uint32_t code) const {
    const auto found = std::lower_bound(characters_.begin(), characters_.end(),
                                        std::make_pair(code, int32_t{0}));
    return found != characters_.end() && found->first == code ? found->second : -1;
}

bool bpe_model::split(int32_t id, std::vector<int32_t>& symbols) const {
    symbols.clear();
    const std::string_view text = bytes_of(id);
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + token(id).size;
    while (at < end) {
        if (rules_.symbols == bpe_symbols::bytes) {
            const bool last = token(id).ends && at + 1 == end;
            symbols.push_back((last ? last_byte_tokens_ : byte_tokens_)[*at++]);
        } else {
            symbols.push_back(character_token(read_stored(at)));
        }
        if (symbols.back() < 0) return false;
    }
    return true;
}

void bpe_model::merge(merging& state) const {
    constexpr size_t kFew = 48;
    if (state.symbols.size() > kFew) return merge_long(state);
    std::vector<int32_t>& symbols = state.symbols;
    std::vector<uint32_t>& ranks = state.ranks;
    size_t count = symbols.size();
    ranks.assign(count, merge_table::kNone);
    for (size_t i = 0; i + 1 < count; ++i) ranks[i] = rank(symbols[i], symbols[i + 1]);
    while (count > 1) {
        const auto best = std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count - 1));
        if (*best == merge_table::kNone) break;
        const auto at = static_cast<size_t>(best - ranks.begin());
        state.level = std::max(state.level, *best + 1);
        state.last = merges_[*best];
        symbols[at] = state.last.merged;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(at));
        --count;
        if (at > 0) ranks[at - 1] = rank(symbols[at - 1], symbols[at]);
        if (at + 1 < count) ranks[at] = rank(symbols[at], symbols[at + 1]);
    }
    symbols.resize(count);
}

// The same with a queue of the merges that are possible, for tokens of any size.
void bpe_model::merge_long(merging& state) const {
    std::vector<int32_t>& symbols = state.symbols;
    const auto size = static_cast<int64_t>(symbols.size());
    struct candidate {
        uint32_t rank;
        int64_t at;
        int32_t left, right;
        bool operator<(const candidate& other) const {
            return std::tie(rank, at) > std::tie(other.rank, other.at);
        }
    };
    std::vector<int64_t> next(symbols.size()), before(symbols.size());
    std::priority_queue<candidate> queue;
    const auto offer = [&](int64_t at) {
        if (at < 0 || next[at] >= size) return;
        const int32_t left = symbols[at], right = symbols[next[at]];
        const uint32_t found = rank(left, right);
        if (found != merge_table::kNone) queue.push({found, at, left, right});
    };
    for (int64_t i = 0; i < size; ++i) {
        next[i] = i + 1;
        before[i] = i - 1;
    }
    for (int64_t i = 0; i < size; ++i) offer(i);
    while (!queue.empty()) {
        const candidate best = queue.top();
        queue.pop();
        const int64_t second = next[best.at];
        if (symbols[best.at] != best.left || second >= size || symbols[second] != best.right) continue;
        state.level = std::max(state.level, best.rank + 1);
        state.last = merges_[best.rank];
        symbols[best.at] = state.last.merged;
        symbols[second] = -1;
        next[best.at] = next[second];
        if (next[second] < size) before[next[second]] = best.at;
        offer(before[best.at]);
        offer(best.at);
    }
    symbols.erase(std::remove(symbols.begin(), symbols.end(), -1), symbols.end());
}

blank_ends bpe_model::blanks(int32_t id) const {
    return static_cast<size_t>(id) < blanks_.size() ? blanks_[static_cast<size_t>(id)] : blank_ends{};
}

void bpe_model::count_blanks(const vocabulary& tokens) {
    const token_list& list = tokens.tokens();
    blanks_.resize(records_.size());
    for (const uint32_t place : tokens.sorted()) {
        const std::string_view text = list.text(place);
        const auto* at = reinterpret_cast<const uint8_t*>(text.data());
        const uint8_t* const end = at + text.size();
        blank_ends ends;
        bool only = true;
        while (at < end) {
            const uint32_t code = read_utf8(at);
            const bool blank = (code <= ' ' || code >= 0x7F) && is_blank(code);
            only = only && blank;
            ends.leading += only;
            ends.trailing = blank ? ends.trailing + 1 : 0;
        }
        if (ends.any()) blanks_[static_cast<size_t>(list.id(place))] = ends;
    }
}

}  // namespace encoder_engine
