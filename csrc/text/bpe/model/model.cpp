// What encoding asks of a model; builder.cpp makes it.
#include "text/bpe/model/model.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "text/text_view.h"

namespace encoder_engine {

bool bpe_model::stay_apart(int32_t left, int32_t right, bool& undecided) const {
    // The levels at which `left` and `right` are used up; at first, never.
    uint32_t left_until = ~0u, right_until = ~0u;
    for (;;) {
        const bpe_token& a = token(left);
        const bpe_token& b = token(right);
        const uint32_t rank = merges_.rank(left, right);
        if (rank != merge_table::kNone) {
            const uint32_t due = std::max({a.level(), b.level(), rank + 1});
            const uint32_t until = std::min(left_until, right_until);
            if (due < until) return false;
            undecided = undecided || due == until;
        }
        if (undecided || (a.level() == 0 && b.level() == 0)) return true;
        if (a.level() == b.level()) {
            undecided = true;
            return true;
        }
        if (a.level() > b.level()) {
            left_until = a.level();
            left = a.right();
        } else {
            right_until = b.level();
            right = b.left();
        }
    }
}

int32_t bpe_model::character_token(uint32_t code) const {
    const auto found = std::lower_bound(characters_.begin(), characters_.end(),
                                        std::make_pair(code, int32_t{0}));
    return found != characters_.end() && found->first == code ? found->second : -1;
}

void bpe_model::split(int32_t id, std::vector<int32_t>& symbols) const {
    std::vector<int32_t> rest{id};
    while (!rest.empty()) {
        const int32_t next = rest.back();
        rest.pop_back();
        const bpe_token& of = token(next);
        if (of.level() == 0) {
            symbols.push_back(next);
        } else {
            rest.push_back(of.right());
            rest.push_back(of.left());
        }
    }
}

void bpe_model::merge(merging& state) const {
    constexpr size_t kFew = 48;
    if (state.symbols.size() > kFew) return merge_long(state);
    std::vector<int32_t>& symbols = state.symbols;
    std::vector<uint32_t>& ranks = state.ranks;
    size_t count = symbols.size();
    ranks.assign(count, merge_table::kNone);
    for (size_t i = 0; i + 1 < count; ++i) ranks[i] = merges_.rank(symbols[i], symbols[i + 1]);
    while (count > 1) {
        const auto best = std::min_element(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count - 1));
        if (*best == merge_table::kNone) break;
        const auto at = static_cast<size_t>(best - ranks.begin());
        state.level = std::max(state.level, *best + 1);
        state.left = symbols[at];
        state.right = symbols[at + 1];
        symbols[at] = merges_.merged(*best);
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
        ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(at));
        --count;
        if (at > 0) ranks[at - 1] = merges_.rank(symbols[at - 1], symbols[at]);
        if (at + 1 < count) ranks[at] = merges_.rank(symbols[at], symbols[at + 1]);
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
        const uint32_t found = merges_.rank(left, right);
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
        state.left = best.left;
        state.right = best.right;
        symbols[best.at] = merges_.merged(best.rank);
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
    if (!blanks_.empty()) return;
    const token_list& list = tokens.tokens();
    blanks_.resize(tokens_.size());
    for (size_t place = 0; place < list.size(); ++place) {
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
