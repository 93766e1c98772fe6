// Turns whole words of plain characters into pieces, a chunk at a time, by way of caches.
//
// How it works: a chunk of at most 1,024 characters is cut into words; a word's key is looked up in a
// cache, prefetched 8 words ahead. A word that misses is searched for its best path (spell) and kept.
// SentencePiece adds scores up in float32 from word to word, so rounding may decide a word's pieces:
// there is one cache for each of 3 sizes of the sum (16,384, 65,536 and 131,072), a word is kept only
// if its best path leads by enough, and beyond the last size every word is searched. Spans of cached
// pieces follow from the sizes of the pieces;
// pieces that stand for any characters (unknown, bytes) have none, so such words are searched again
// when spans are kept. ASCII takes 8-bit units, other text 16-bit units.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "text/unigram/piece_sums.h"
#include "text/unigram/words.h"
#include "text/words/word_cache.h"
#include "text/words/word_chunk.h"

namespace encoder_engine {

using unigram_memory = word_memory<16, 13, 14, 12, 11>;

// The word caches for one unit size, each made at the first text that needs it.
struct unigram_memories {
    std::unique_ptr<unigram_memory> words[kNumSumMemories];
};

struct unigram_lane_scratch {
    word_chunk chunk;
    unigram_memories narrow, wide;
};

// The tokenizer's rules for the lane. Only tokenizers whose word boundaries follow from the
// characters have them.
struct unigram_lane_rules {
    char_classes classes;
    scan_functions functions;
    uint32_t mark;
    bool mark_is_space;  // the mark in front of a word stands for the space there
    bool unknown_joins;  // a word may begin with an unknown token, which one before it then takes in
    int32_t unknown;
    int32_t first_byte, last_byte;  // the ids of bytes lie there, if there are any

    // Whether a token stands for any characters: an unknown token, or a byte.
    bool stands_for_any(int32_t id) const {
        return id == unknown || (id >= first_byte && id <= last_byte);
    }
};

// Rules for these characters; `bytes` are the ids by byte, if there are any.
inline std::unique_ptr<unigram_lane_rules> make_lane_rules(char_classes classes, uint32_t mark,
                                                           bool mark_is_space, bool unknown_joins,
                                                           int32_t unknown,
                                                           const std::vector<int32_t>& bytes) {
    int32_t first = 1, last = 0;
    if (!bytes.empty()) {
        first = *std::min_element(bytes.begin(), bytes.end());
        last = *std::max_element(bytes.begin(), bytes.end());
    }
    return std::make_unique<unigram_lane_rules>(unigram_lane_rules{
        std::move(classes), choose_scan_functions(), mark, mark_is_space, unknown_joins, unknown, first,
        last});
}

// Takes words from a text as far as every character is plain, including the white space after them.
// `Tokens` receives each word's pieces: unigram_tokens or sentencepiece_tokens.
template <typename Char, typename Tokens>
class unigram_lane {
    static constexpr bool with_spans = Tokens::kWithSpans;
    // Whether a word's span reaches to the next mark, which stands for the first space between the
    // words. Otherwise a mark stands for the last space.
    static constexpr bool kReaches = Tokens::kWordsReach;
    // Whether a word's pieces may depend on the sum of the scores before it.
    static constexpr bool kSums = Tokens::kSumsReach;

public:
    unigram_lane(const unigram_lane_rules& rules, const unigram_model& model,
                 unigram_lane_scratch& scratch, token_buffer& out, int64_t limit, bool ascii,
                 Tokens& tokens)
        : rules_(rules), model_(model), scratch_(scratch), out_(out), limit_(limit), ascii_(ascii),
          tokens_(tokens) {}

    // Takes the words of text[0, length). The text begins between words, at character `base` of the
    // whole; `space` is the source of the space before it, or -1. Returns the end of the last word,
    // 0 if there is none.
    int64_t take(const Char* text, int64_t length, int64_t base, int64_t space) {
        int64_t done = 0, end = 0;
        do {
            const text_rest<Char> rest{text + done, length - done};
            const int run = static_cast<int>(std::min<int64_t>(64, rest.length));
            word_chunk& chunk = scratch_.chunk;
            if (ascii_ || is_ascii(rest.text, run)) {
                scan_ascii(rest, rules_.classes, rules_.functions, chunk);
                emit<uint8_t>(base + done, space);
            } else {
                scan_wide(rest, rules_.classes, rules_.functions, chunk);
                emit<uint16_t>(base + done, space);
            }
            if (chunk.num_words > 0) {
                end = done + last_end_;
            }
            done += chunk.consumed;
            // What is left of a chunk is spaces, or follows one.
            if (kReaches ? end > 0 : done > end) space = base + (kReaches ? end : done - 1);
        } while (!scratch_.chunk.blocked && done < length && out_.size() < limit_);
        return end;
    }

    // Takes words of an ASCII chunk that holds several texts; theirs begins at `first_unit`.
    void take_row(int first_word, int end_word, int first_unit, int64_t limit) {
        limit_ = limit;
        emit<uint8_t>(first_word, end_word, first_unit, -int64_t{first_unit}, -1);
    }

private:
    static bool is_ascii(const Char* text, int count) {
        for (int i = 0; i < count; ++i) {
            if (text[i] >= 128) return false;
        }
        return true;
    }

    template <typename Unit>
    void emit(int64_t base, int64_t space) {
        const word_chunk& chunk = scratch_.chunk;
        emit<Unit>(0, chunk.num_words, 0, base, space);
        if (chunk.num_words == 0) return;
        const int last = chunk.starts[chunk.num_words - 1] + chunk.sizes[chunk.num_words - 1] - 1;
        last_end_ = static_cast<int64_t>(source<Unit>(last)) + 1;
    }
    // Takes words [begin, end) of the chunk; their text, or the rest of it, begins at `first_unit`.
    template <typename Unit>
    void emit(int begin, int end, int first_unit, int64_t base, int64_t space) {
        if constexpr (!kSums) {
            emit<Unit>(begin, end, 0, first_unit, base, space);
        } else {
            for (int from = begin; from < end && out_.size() < limit_;) {
                if (from > begin) space = base + offset_after<Unit>(from - 1);
                const int which = tokens_.choose_memory();
                from = which < 0 ? spell_one<Unit>(from, first_unit, base, space)
                                 : emit<Unit>(from, end, which, first_unit, base, space);
            }
        }
    }
    // Searches one word's path without a cache.
    template <typename Unit>
    int spell_one(int index, int first_unit, int64_t base, int64_t space) {
        out_.ids.reserve_more(kReserved);
        spell<Unit>(-1, index, 0, places<Unit>(index, first_unit, base, space));
        tokens_.next_word();
        return index + 1;
    }
    // Takes words with the help of one of the caches; returns the first word that is left.
    template <typename Unit>
    int emit(int begin, int end, int which, int first_unit, int64_t base, int64_t space) {
        word_chunk& chunk = scratch_.chunk;
        unigram_memory& memory = made(memories_of(Unit{}).words[which]);
        int i = begin;
        for (; i < end && out_.size() < limit_; ++i) {
            if constexpr (kSums) {
                if (out_.size() >= tokens_.memory_end()) break;
            }
            if (kReaches && i > begin) space = base + offset_after<Unit>(i - 1);
            out_.ids.reserve_more(kReserved);
            __builtin_prefetch(memory.short_words.place(chunk.keys[i + word_chunk::kAhead]));
            const int64_t first = out_.size();
            const int num_bytes = chunk.sizes[i] * static_cast<int>(sizeof(Unit));
            int known = num_bytes <= word_key::kMaxSize
                            ? memory.short_words.find(chunk.keys[i], out_.ids.end())
                            : 0;
            if (known == 0) known = look_up<Unit>(memory, i, num_bytes);
            if (kSums && known > 0 && *out_.ids.end() == kHasUnknown) known = take_unknown(known);
            out_.ids.extend(known);
            const token_spans at = places<Unit>(i, first_unit, base, space);
            if (known == 0) {
                spell<Unit>(which, i, num_bytes, at);
            } else if (with_spans && stand_for_any(first)) {
                out_.ids.truncate(first);
                spell<Unit>(which, i, num_bytes, at);
            } else {
                tokens_.known_word();
                if (with_spans) add_spans<Unit>(i, first, at);
            }
            tokens_.next_word();
        }
        return i;
    }

    static constexpr int kReserved = 32;

    // The sources of a word's mark and of its first unit.
    struct token_spans {
        int64_t mark, base;
    };
    template <typename Unit>
    token_spans places(int index, int first_unit, int64_t base, int64_t space) const {
        const int64_t start = source<Unit>(scratch_.chunk.starts[index]);
        if (kReaches) return {space < 0 ? base + start : space, base};
        if (!rules_.mark_is_space) return {base + start, base};
        // Only the chunk's first word may have no space before it.
        if (start > first_unit) return {base + start - 1, base};
        return {space < 0 ? base + start : space, base};
    }
    // The end of a word, as a character.
    template <typename Unit>
    int64_t offset_after(int index) const {
        return source<Unit>(scratch_.chunk.starts[index] + scratch_.chunk.sizes[index]);
    }
    template <typename Unit>
    int64_t source(int unit) const {
        return sizeof(Unit) == 1 ? unit : scratch_.chunk.sources[unit];
    }

    template <typename Unit>
    int look_up(const unigram_memory& memory, int index, int num_bytes) const {
        return memory.find(scratch_.chunk.keys[index], bytes_of<Unit>(index), num_bytes,
                           out_.ids.end());
    }
    // Marks a cached word with unknown tokens, where sums reach from word to word: this value, the
    // ids, then the number of characters of each unknown token. No id is as large.
    static constexpr int32_t kHasUnknown = (1 << 27) - 1;

    // Turns the cached values of a marked word into ids; returns how many, 0 with spans.
    int take_unknown(int count) {
        if constexpr (!kSums || with_spans) {
            return 0;
        } else {
            int32_t* const found = out_.ids.end();
            int known = 0;
            for (int counts = 1; known + counts < count; ++known) {
                found[known] = found[known + 1];
                counts += is_unknown(found[known]);
            }
            for (int i = known + 1; i < count; ++i) tokens_.known_unknown(found[i]);
            return known;
        }
    }
    bool is_unknown(int32_t id) const { return id == rules_.unknown; }
    template <typename Unit>
    const uint8_t* bytes_of(int index) const {
        return reinterpret_cast<const uint8_t*>(units_of(Unit{}) + scratch_.chunk.starts[index]);
    }
    const uint8_t* units_of(uint8_t) const { return scratch_.chunk.bytes; }
    const uint16_t* units_of(uint16_t) const { return scratch_.chunk.units; }

    // Searches the pieces of a word, and caches them.
    template <typename Unit>
    void spell(int which, int index, int num_bytes, token_spans at) {
        const word_chunk& chunk = scratch_.chunk;
        const int64_t first = out_.size();
        // An unknown token before may absorb the word's start; the word's own tokens would not show
        // that.
        const bool joins = rules_.unknown_joins && tokens_.after_unknown();
        tokens_.word_letter(rules_.mark, at.mark);
        const int start = chunk.starts[index];
        for (int i = start; i < start + chunk.sizes[index]; ++i) {
            uint32_t code = units_of(Unit{})[i];
            // A character above 0xFFFF is two units.
            if ((code & 0xFC00) == 0xD800) {
                code = 0x10000 + ((code & 0x3FF) << 10 | (units_of(Unit{})[++i] & 0x3FFu));
            }
            tokens_.word_letter(code, at.base + source<Unit>(i));
        }
        tokens_.spell_word(at.base + offset_after<Unit>(index));
        if (!joins) keep<Unit>(which, index, num_bytes, first);
    }

    // Caches the pieces of a word: the tokens from `first` on.
    template <typename Unit>
    void keep(int which, int index, int num_bytes, int64_t first) {
        const word_key& key = scratch_.chunk.keys[index];
        const int32_t* ids = out_.ids.data() + first;
        const int64_t count = out_.size() - first;
        const auto unknown = [this](int32_t id) { return is_unknown(id); };
        const bool any = (kSums || rules_.unknown_joins) && std::any_of(ids, ids + count, unknown);
        if (any && rules_.unknown_joins) return;
        if constexpr (kSums) {
            if (which < 0 || !tokens_.may_be_kept(which)) return;
            const pod_vector<int32_t>& counts = tokens_.unknown_counts();
            if (any) {
                const int64_t size = 1 + count + counts.size();
                if (size > unigram_memory::kMaxPieces) return;
                int32_t all[unigram_memory::kMaxPieces] = {kHasUnknown};
                std::copy_n(ids, count, all + 1);
                std::copy_n(counts.data(), counts.size(), all + 1 + count);
                return made(memories_of(Unit{}).words[which])
                    .keep(key, bytes_of<Unit>(index), num_bytes, all, size);
            }
        }
        made(memories_of(Unit{}).words[which]).keep(key, bytes_of<Unit>(index), num_bytes, ids, count);
    }

    // Whether a token from `first` on stands for any characters: its span does not follow from its
    // id.
    bool stand_for_any(int64_t first) const {
        return std::any_of(out_.ids.data() + first, out_.ids.data() + out_.size(),
                           [this](int32_t id) { return rules_.stands_for_any(id); });
    }

    // Appends the spans of cached pieces, from the pieces' sizes; the mark is the first unit.
    template <typename Unit>
    void add_spans(int index, int64_t first, token_spans at) {
        const int64_t start = scratch_.chunk.starts[index];
        int64_t from = -1;
        for (int64_t i = first; i < out_.size(); ++i) {
            const int64_t to =
                std::min<int64_t>(from + model_.piece_units(out_.ids[i]), scratch_.chunk.sizes[index]);
            const int64_t begin =
                from < 0 ? at.mark : at.base + source<Unit>(static_cast<int>(start + from));
            tokens_.add_span(begin, span_end<Unit>(start, to, at));
            from = to;
        }
    }
    template <typename Unit>
    int64_t span_end(int64_t start, int64_t to, token_spans at) const {
        if (kReaches) return at.base + source<Unit>(static_cast<int>(start + std::max<int64_t>(to, 0)));
        return to <= 0 ? at.mark + 1 : at.base + source<Unit>(static_cast<int>(start + to - 1)) + 1;
    }

    unigram_memories& memories_of(uint8_t) { return scratch_.narrow; }
    unigram_memories& memories_of(uint16_t) { return scratch_.wide; }
    static unigram_memory& made(std::unique_ptr<unigram_memory>& memory) {
        if (memory == nullptr) memory = std::make_unique<unigram_memory>();
        return *memory;
    }

    const unigram_lane_rules& rules_;
    const unigram_model& model_;
    unigram_lane_scratch& scratch_;
    token_buffer& out_;
    int64_t limit_;
    bool ascii_;
    Tokens& tokens_;
    int64_t last_end_ = 0;  // in the chunk: the character behind its last word
};

}  // namespace encoder_engine
