// Reads tokens and merges, and works out levels from the shortest tokens to the longest.
#include <algorithm>
#include <array>
#include <future>
#include <string>
#include <string_view>
#include <system_error>

#include "common/cpu_count.h"
#include "text/bpe/model/model.h"
#include "text/sorted_texts.h"

namespace encoder_engine {
namespace {

// The bytes that text in UTF-8 can hold.
bool occurs(int byte) { return byte < 0xC0 || (byte >= 0xC2 && byte <= 0xF4); }

// The bytes that the letters of the byte-level alphabet stand for, -1 for other characters and for bytes
// that text never holds: printable bytes stand for themselves, the others are numbered from U+0100 on.
const std::array<int16_t, 0x144>& bytes_of_letters() {
    static const auto kBytes = [] {
        std::array<int16_t, 0x144> out;
        out.fill(-1);
        size_t other = 0x100;
        for (int byte = 0; byte < 256; ++byte) {
            const bool printable = byte >= 0x21 && !(byte >= 0x7F && byte < 0xA1) && byte != 0xAD;
            const size_t letter = printable ? static_cast<size_t>(byte) : other++;
            if (occurs(byte)) out[letter] = static_cast<int16_t>(byte);
        }
        return out;
    }();
    return kBytes;
}

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

struct bpe_model::builder {
    bpe_model& model;
    const vocabulary& tokens;
    const std::vector<bpe_merge>& merges;
    const bpe_rules& rules;
    token_list stored;  // the bytes of the tokens that text may hold
    std::vector<int32_t> last_byte_tokens;
    std::vector<bool> special;  // by id: no merge may have these
    // Of the trie, which a second thread may build.
    std::vector<sorted_text> keys;  // `stored`, sorted
    std::vector<byte_trie::token_place> places;

    // The trie takes as long as all that is asked of the merges, and needs nothing of it: with many
    // tokens it has a thread of its own, if one can be had.
    void build() {
        constexpr size_t kMany = 16384;
        if (!read_tokens()) return;
        const bool beside = stored.size() >= kMany && num_usable_cpus() > 1;
        std::future<bool> trie = begin_trie(beside ? std::launch::async : std::launch::deferred);
        if (!find_levels()) return;
        if (trie.get()) {
            join();
        } else {
            fail(bpe_refusal::too_large, static_cast<int64_t>(keys.size()));
        }
    }

private:
    std::future<bool> begin_trie(std::launch when) {
        try {
            return std::async(when, [this] { return build_trie(); });
        } catch (const std::system_error&) {  // no thread can be had
            return std::async(std::launch::deferred, [this] { return build_trie(); });
        }
    }
    bpe_token& token(int32_t id) { return model.tokens_[static_cast<size_t>(id)]; }
    bool fail(bpe_refusal::kind why, int64_t place) {
        model.refusal_ = {why, place};
        return false;
    }

    // Writes a token's bytes; false if it has letters that stand for none.
    bool decode(std::string_view text, std::string& out, bool& ends) const;
    bool read_tokens();
    bool read_merges();
    bool check_merge(int64_t rank, const bpe_merge& merge, int32_t suffix_token);
    bool find_symbols();
    bool find_levels();
    std::vector<uint32_t> order_by_size();
    bool form(const bpe_merge& merge, uint32_t rank, const merge_filter& filter, bool& undecided);
    void form_by_merging(const bpe_merge& merge);
    bool build_trie();
    void join();
};

bpe_model::bpe_model(const vocabulary& tokens, const std::vector<bpe_merge>& merges, bpe_rules rules)
    : rules_(std::move(rules)), byte_tokens_(256, -1) {
    builder{*this, tokens, merges, rules_, {}, std::vector<int32_t>(256, -1), {}, {}, {}}.build();
}

bool bpe_model::builder::decode(std::string_view text, std::string& out, bool& ends) const {
    ends = !rules.suffix.empty() && text.size() > rules.suffix.size() && ends_with(text, rules.suffix);
    if (ends) text.remove_suffix(rules.suffix.size());
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + text.size();
    // No character becomes longer.
    const size_t start = out.size();
    out.resize(start + text.size() + 1);
    char* to = &out[start];
    if (rules.symbols == bpe_symbols::bytes) {
        const auto& letters = bytes_of_letters();
        while (at < end) {
            const uint32_t code = *at < 0x80 ? *at++ : read_utf8(at);
            const int byte = code < letters.size() ? letters[code] : -1;
            // Text never holds such a token; one of its bytes would be taken for the suffix.
            if (byte < 0) return false;
            *to++ = static_cast<char>(byte);
        }
    } else {
        while (at < end) {
            const uint8_t* const from = at;
            const uint32_t code = read_utf8(at);
            if (code == kMark || code == ' ') {
                *to++ = static_cast<char>(code == ' ' ? kSpaceByte : kMarkByte);
            } else {
                to = std::copy(from, std::min<const uint8_t*>(at, end), to);
            }
        }
    }
    if (ends) *to++ = static_cast<char>(kSuffixByte);
    out.resize(static_cast<size_t>(to - out.data()));
    return true;
}

bool bpe_model::builder::read_tokens() {
    const token_list& list = tokens.tokens();
    int32_t largest = -1;
    for (size_t place = 0; place < list.size(); ++place) largest = std::max(largest, list.id(place));
    if (largest >= 1 << merge_table::kIdBits) return fail(bpe_refusal::too_large, largest);
    model.tokens_.resize(static_cast<size_t>(largest) + 1);
    stored.reserve(list.size(), list.bytes().size() + list.size());
    for (size_t place = 0; place < list.size(); ++place) {
        std::string& bytes = stored.open_text();
        const size_t start = bytes.size();
        bool ends = false;
        if (decode(list.text(place), bytes, ends) && bytes.size() > start) {
            token(list.id(place)).set_text(static_cast<uint32_t>(bytes.size() - start) - ends, ends);
            stored.end_text(list.id(place));
        } else {
            bytes.resize(start);
        }
    }
    return true;
}

bool bpe_model::builder::check_merge(int64_t rank, const bpe_merge& merge, int32_t suffix_token) {
    if (merge.left < 0 || merge.right < 0) return fail(bpe_refusal::missing_part, rank);
    if (merge.merged < 0) return fail(bpe_refusal::missing_result, rank);
    if (!rules.suffix.empty()) {
        // Only the last symbol has the suffix: no letters may be taken for it.
        const bool whole = merge.left != suffix_token && merge.right != suffix_token;
        if (!whole || token(merge.left).ends() || token(merge.right).ends() != token(merge.merged).ends()) {
            return fail(bpe_refusal::suffix_inside, rank);
        }
    }
    if (rules.symbols == bpe_symbols::bytes) return true;
    for (const int32_t id : {merge.left, merge.right, merge.merged}) {
        if (special[static_cast<size_t>(id)]) return fail(bpe_refusal::special_merge, rank);
    }
    return true;
}

bool bpe_model::builder::read_merges() {
    const auto id_of = [this](std::string_view text) {
        const int64_t place = tokens.find(text);
        return place < 0 ? -1 : tokens.tokens().id(static_cast<size_t>(place));
    };
    special.resize(model.tokens_.size());
    if (rules.unknown >= 0) special[static_cast<size_t>(rules.unknown)] = true;
    if (rules.byte_fallback) {
        char name[] = "<0x00>";
        for (int byte = 0; byte < 256; ++byte) {
            name[3] = "0123456789ABCDEF"[byte >> 4];
            name[4] = "0123456789ABCDEF"[byte & 15];
            const int32_t id = id_of(name);
            if (id < 0) return fail(bpe_refusal::missing_symbol, byte);
            model.byte_tokens_[static_cast<size_t>(byte)] = id;
            special[static_cast<size_t>(id)] = true;
        }
    }
    const auto count = static_cast<int64_t>(merges.size());
    if (count >= 1 << merge_table::kRankBits) return fail(bpe_refusal::too_large, count);
    const int32_t suffix_token = rules.suffix.empty() ? -1 : id_of(rules.suffix);
    for (int64_t rank = 0; rank < count; ++rank) {
        if (!check_merge(rank, merges[static_cast<size_t>(rank)], suffix_token)) return false;
    }
    model.merges_.build(merges);
    return true;
}

bool bpe_model::builder::find_symbols() {
    const bool by_bytes = rules.symbols == bpe_symbols::bytes;
    for (size_t place = 0; place < stored.size(); ++place) {
        const int32_t id = stored.id(place);
        const auto* const at = reinterpret_cast<const uint8_t*>(stored.text(place).data());
        if (by_bytes) {
            if (token(id).size() != 1) continue;
            (token(id).ends() ? last_byte_tokens : model.byte_tokens_)[*at] = id;
        } else {
            const uint8_t* end = at;
            const uint32_t code = read_stored(end);
            if (end != at + token(id).size() || id == rules.unknown) continue;
            model.characters_.push_back({code, id});
        }
        token(id).set_made();
    }
    std::sort(model.characters_.begin(), model.characters_.end());
    if (rules.byte_fallback) {
        if (model.character_token(kMarkByte) < 0) return fail(bpe_refusal::missing_symbol, kMark);
        // Such a token stands for a byte of its character.
        for (const int32_t id : model.byte_tokens_) token(id).set_text(1, false);
    }
    for (int byte = 0; by_bytes && byte < 256; ++byte) {
        const auto at = static_cast<size_t>(byte);
        const bool lacks_last = !rules.suffix.empty() && last_byte_tokens[at] < 0;
        if (occurs(byte) && (model.byte_tokens_[at] < 0 || lacks_last)) {
            return fail(bpe_refusal::missing_symbol, byte);
        }
    }
    return true;
}

// Marks the result of a merge as made if merging its bytes ends with this merge.
bool bpe_model::builder::form(const bpe_merge& merge, uint32_t rank, const merge_filter& filter, bool& undecided) {
    int32_t left = merge.left, right = merge.right;
    const uint32_t top = std::max({token(left).level(), token(right).level(), rank + 1});
    uint32_t left_until = top, right_until = top;
    for (bool first = true;; first = false) {
        const bpe_token& a = token(left);
        const bpe_token& b = token(right);
        const bool mergeable = !first && filter.may_hold(left, right);
        const uint32_t across = mergeable ? model.merges_.rank(left, right) : merge_table::kNone;
        if (across != merge_table::kNone) {
            const uint32_t due = std::max({a.level(), b.level(), across + 1});
            const uint32_t until = std::min(left_until, right_until);
            if (due < until) return false;
            undecided = undecided || due == until;
        }
        if (a.level() == 0 && b.level() == 0) break;
        undecided = undecided || a.level() == b.level();
        if (undecided) return false;
        if (a.level() > b.level()) {
            left_until = a.level();
            left = a.right();
        } else {
            right_until = b.level();
            right = b.left();
        }
    }
    if (undecided) return false;
    token(merge.merged).set_merge(top, merge.left, merge.right);
    return true;
}

void bpe_model::builder::form_by_merging(const bpe_merge& merge) {
    merging state;
    model.split(merge.left, state.symbols);
    model.split(merge.right, state.symbols);
    model.merge(state);
    if (state.symbols.size() != 1 || state.symbols[0] != merge.merged) return;
    token(merge.merged).set_merge(state.level, state.left, state.right);
}

// The ranks in the order of the results' sizes: the parts of a merge are done before it.
std::vector<uint32_t> bpe_model::builder::order_by_size() {
    uint32_t longest = 0;
    for (const bpe_merge& merge : merges) longest = std::max(longest, token(merge.merged).stored());
    std::vector<uint32_t> starts(longest + 2), order(merges.size());
    for (const bpe_merge& merge : merges) ++starts[token(merge.merged).stored() + 1];
    for (uint32_t size = 0; size <= longest; ++size) starts[size + 1] += starts[size];
    for (uint32_t rank = 0; rank < merges.size(); ++rank) {
        order[starts[token(merges[rank].merged).stored()]++] = rank;
    }
    return order;
}

// Works out what every token is made of; false if the model is refused.
bool bpe_model::builder::find_levels() {
    if (!read_merges() || !find_symbols()) return false;
    const std::vector<uint32_t> order = order_by_size();
    const merge_filter filter(merges);
    // A later merge of the same parts has replaced these.
    std::vector<bool> replaced(merges.size());
    for (const auto& [rank, merge] : model.merges_.replaced()) replaced[rank] = true;
    constexpr size_t kAhead = 16;
    for (size_t i = 0; i < order.size(); ++i) {
        if (i + kAhead < order.size()) {
            const bpe_merge& later = merges[order[i + kAhead]];
            __builtin_prefetch(&token(later.left));
            __builtin_prefetch(&token(later.right));
            __builtin_prefetch(&token(later.merged));
        }
        const uint32_t rank = order[i];
        const bpe_merge& merge = merges[rank];
        if (replaced[rank] || token(merge.merged).made() || token(merge.merged).size() == 0) continue;
        if (!token(merge.left).made() || !token(merge.right).made()) continue;
        bool undecided = false;
        form(merge, rank, filter, undecided);
        if (undecided) form_by_merging(merge);
    }
    return true;
}

bool bpe_model::builder::build_trie() {
    keys = sort_texts(stored);
    return model.trie_.build(stored, keys, places);
}

// Tells the trie which tokens are made, and the tokens which shorter ones begin them.
void bpe_model::builder::join() {
    constexpr size_t kAhead = 16;
    const auto id = [this](size_t k) { return stored.id(keys[k].place); };
    for (size_t k = 0; k < keys.size(); ++k) {
        if (k + kAhead < keys.size()) __builtin_prefetch(&token(id(k + kAhead)), 1);
        bpe_token& of = token(id(k));
        const byte_trie::token_place& place = places[k];
        // What begins a token stands before it. One that is not made never stands inside a word.
        if (place.shorter >= 0) {
            const bpe_token& shorter = token(id(static_cast<size_t>(place.shorter)));
            of.set_shorter(shorter.made() ? id(static_cast<size_t>(place.shorter)) : shorter.shorter());
        }
        if (of.made()) {
            model.trie_.set_inner(place);
        } else if (!rules.ignore_merges) {
            model.trie_.remove(place);
        }
        if (rules.symbols == bpe_symbols::bytes || !of.made()) continue;
        const std::string_view text = stored.text(keys[k].place);
        for (size_t at = 1; at < text.size(); ++at) {
            model.marks_begin_ &= text[at] != kMarkByte || text[at - 1] == kMarkByte;
        }
    }
}

}  // namespace encoder_engine
