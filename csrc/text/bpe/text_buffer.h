// Characters as bytes, with their classes and sources: the text that is cut into words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "text/bpe/chars.h"
#include "text/bpe/model/model.h"
#include "text/bpe/word_starts.h"
#include "text/unigram/words.h"
#include "text/words/word_cutter.h"

namespace encoder_engine {

// What is put before a segment, and how it is cut.
struct bpe_splitting {
    word_pattern pattern = word_pattern::gpt2;
    bool prefix = false;     // a space, unless one is there
    bool metaspace = false;  // spaces become marks, and one is put in front by the scheme
    prepend_scheme scheme = prepend_scheme::never;
};

// The tokenizer's rules for its words.
struct bpe_lane {
    const bpe_model& model;
    const bpe_splitting& splitting;
    const pattern_cutter& cutter;
    const bpe_chars& chars;
    const step_char_table& table;
    scan_functions functions;
};

// The buffers of the text under way.
struct bpe_text {
    pod_vector<uint8_t> bytes;
    pod_vector<uint8_t> classes;  // per byte that is not ASCII, the class of its character
    pod_vector<int32_t> sources;  // with spans: per byte, the character it came from

    int64_t num_bytes() const { return bytes.capacity() + classes.capacity() + 4 * sources.capacity(); }
    void truncate(int64_t size) {
        bytes.truncate(size);
        classes.truncate(size);
        sources.truncate(size);
    }
    void drop_front(int64_t count, bool with_spans) {
        bytes.drop_front(count);
        classes.drop_front(count);
        if (with_spans) sources.drop_front(count);
    }
};

// Writes characters into the buffers, one by one or runs of plain ones.
template <bool with_spans>
class bpe_writer {
public:
    bpe_writer(const bpe_lane& lane, bpe_text& text)
        : lane_(lane), text_(text),
          marks_(lane.model.rules().symbols == bpe_symbols::characters) {}

    void put(uint32_t code, int64_t source) {
        text_.bytes.reserve_more(word_starts::kPadding + 4);
        text_.classes.reserve_more(word_starts::kPadding + 4);
        if (with_spans) text_.sources.reserve_more(4);
        if (marks_ && (code == ' ' || code == bpe_model::kMark)) {
            *text_.bytes.end() = code == ' ' ? bpe_model::kSpaceByte : bpe_model::kMarkByte;
            return extend(1, 0, source);
        }
        const int size = write_utf8(code, text_.bytes.end());
        extend(size, lane_.chars.entry(code) & bpe_chars::kClasses, source);
    }
    void extend(int size, uint8_t kind, int64_t source) {
        std::memset(text_.classes.end(), kind, 4);
        text_.bytes.extend(size);
        text_.classes.extend(size);
        for (int i = 0; with_spans && i < size; ++i) text_.sources.push(static_cast<int32_t>(source));
    }
    // Takes plain characters until the buffer has `most` bytes; returns how many.
    template <typename Char>
    int64_t take(const Char* text, int64_t length, int64_t at, int64_t most) {
        most_ = most;
        text_.bytes.reserve_more(most + kRoom);
        text_.classes.reserve_more(most + kRoom);
        if (with_spans) text_.sources.reserve_more(most + kRoom);
        int64_t done = 0;
        for (int64_t before = -1; done > before && done < length && !filled();) {
            before = done;
            done = take_ascii(text, done, length, at);
            if (done < length && text[done] >= 128 && !filled()) done = take_wide(text, done, length, at);
        }
        return untake(text, done, length);
    }

private:
    static constexpr int64_t kRoom = 192;  // bytes that a step may write beyond the end
    static constexpr int kAsciiRun = 16;   // shorter ones are not worth a change of path

    bool filled() const { return text_.bytes.size() >= most_; }
    // Whether an ASCII character may begin an added token where it stands.
    template <typename Char>
    bool may_start(const Char* text, int64_t at, int64_t length) const {
        return at + 1 >= length || lane_.chars.may_start(text[at], text[at + 1]);
    }
    // Takes ASCII characters, 64 at a time, up to one that needs a closer look.
    template <typename Char>
    int64_t take_ascii(const Char* text, int64_t done, int64_t length, int64_t at) {
        const char_classes& blocks = lane_.chars.blocks();
        const auto classify = lane_.functions.classify(Char{});
        while (done < length && !filled()) {
            const int count = static_cast<int>(std::min<int64_t>(64, length - done));
            ascii_masks masks;
            classify(text + done, count, blocks, text_.bytes.end(), masks);
            const uint64_t used = count == 64 ? ~0ull : (1ull << count) - 1;
            uint64_t stops = ~masks.letters & used;
            for (uint64_t starts = masks.starts & used; starts != 0; starts &= starts - 1) {
                const int start = __builtin_ctzll(starts);
                if (may_start(text, done + start, length)) {
                    stops |= 1ull << start;
                    break;
                }
            }
            const int taken = stops == 0 ? count : __builtin_ctzll(stops);
            text_.bytes.extend(taken);
            text_.classes.extend(taken);
            if (with_spans) {
                int32_t* const sources = text_.sources.end();
                const auto first = static_cast<int32_t>(at + done);
                for (int i = 0; i < 64; ++i) sources[i] = first + i;
                text_.sources.extend(taken);
            }
            done += taken;
            if (taken < count) break;
        }
        return done;
    }
    // Takes characters of any kind, up to one that needs a closer look or a longer run of ASCII.
    template <typename Char>
    int64_t take_wide(const Char* text, int64_t done, int64_t length, int64_t at) {
        const char_classes& blocks = lane_.chars.blocks();
        uint8_t* bytes = text_.bytes.end();
        uint8_t* classes = text_.classes.end();
        int32_t* sources = with_spans ? text_.sources.end() : nullptr;
        const uint8_t* const most = text_.bytes.data() + most_;
        for (int ascii = 0; done < length && ascii < kAsciiRun && bytes < most; ++done) {
            const uint32_t code = text[done];
            uint8_t entry = 0;
            int size = 1;
            if (code < 128) {
                const uint8_t flags = blocks.flags[code];
                if ((flags & char_classes::kLetter) == 0) break;
                if ((flags & char_classes::kStart) != 0 && may_start(text, done, length)) break;
                *bytes = blocks.lowered[code];
                ++ascii;
            } else {
                entry = lane_.chars.entry(code);
                if ((entry & bpe_chars::kUnusual) != 0) break;
                size = write_utf8(code, bytes);
                ascii = 0;
            }
            std::memset(classes, entry, 4);
            for (int i = 0; with_spans && i < 4; ++i) sources[i] = static_cast<int32_t>(at + done);
            bytes += size;
            classes += size;
            if (with_spans) sources += size;
        }
        const int64_t taken = bytes - text_.bytes.end();
        text_.bytes.extend(taken);
        text_.classes.extend(taken);
        if (with_spans) text_.sources.extend(taken);
        return done;
    }
    // Gives characters back that what follows may change, or take in.
    template <typename Char>
    int64_t untake(const Char* text, int64_t done, int64_t length) {
        const bool tied = done < length && !lane_.table[text[done]].regular();
        bool back = tied && done > 0;
        while (back || (done > 0 && lane_.chars.looks_back() && is_strip_space(text[done - 1]))) {
            back = false;
            --done;
            const uint8_t* const bytes = text_.bytes.data();
            int64_t size = text_.bytes.size() - 1;
            while (bytes[size] >= 0x80 && bytes[size] < 0xC0) --size;
            text_.truncate(size);
        }
        return done;
    }

    const bpe_lane& lane_;
    bpe_text& text_;
    bool marks_;
    int64_t most_ = 0;
};

}  // namespace encoder_engine
