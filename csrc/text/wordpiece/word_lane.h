// Takes a text in chunks of whole words, and leaves what blocks them to the character scanner.
//
// How it works: a chunk of at most 1,024 characters is classified 64 at a time into bit masks, cut
// into normalized words, and its words are looked up in the cache of known words. ASCII takes a path
// of 8-bit units; other text takes 16-bit units, and in a mixed text a run below 64 ASCII characters
// is not worth a change of path. A character that needs a rule (an added token's first character,
// a character that normalizes to several) blocks the chunk: the scanner then goes character by
// character to the next place between words, where chunks go on. In a word above the model's limit
// of characters only the end matters, so letters are skipped 64 at a time, then 16.
#pragma once

#include <algorithm>
#include <cstdint>

#include "text/wordpiece/scanner.h"
#include "text/words/word_chunk.h"

namespace encoder_engine {

// `Sink::emit<Unit>(chunk, base)` receives a chunk that begins at character `base`; the character
// scanner feeds the sink the other characters.
template <typename Char, typename Sink>
class word_lane {
public:
    word_lane(const char_table& table, const char_classes& classes, const scan_functions& functions,
              const added_token_set& added, const Char* text, int64_t length, bool ascii,
              word_chunk& chunk, Sink& sink)
        : classes_(classes), functions_(functions), slow_(table, added, text, length, sink),
          text_(text), length_(length), ascii_(ascii), chunk_(chunk), sink_(sink) {}

    status run() {
        int64_t at = 0;
        while (at < length_ && !sink_.full()) {
            take_chunk(at);
            at += chunk_.consumed;
            if (chunk_.blocked && at < length_ && !sink_.full()) {
                const status result = run_slow(at);
                if (!result.ok()) return result;
            }
        }
        sink_.finish();
        return {};
    }

private:
    // In a text that is not ASCII throughout, shorter runs are not worth a change of path.
    static constexpr int kMinAsciiRun = 64;

    void take_chunk(int64_t at) {
        const text_rest<Char> rest{text_ + at, length_ - at};
        const int run = static_cast<int>(std::min<int64_t>(kMinAsciiRun, rest.length));
        if (ascii_ || is_ascii(rest.text, run)) {
            scan_ascii(rest, classes_, functions_, chunk_);
            sink_.template emit<uint8_t>(chunk_, at);
        } else {
            scan_wide(rest, classes_, functions_, chunk_);
            sink_.template emit<uint16_t>(chunk_, at);
        }
    }

    static bool is_ascii(const Char* text, int count) {
        // The first few characters usually decide.
        int at = 0;
        for (; at + 16 <= count; at += 16) {
            uint32_t seen = 0;
            for (int i = 0; i < 16; ++i) seen |= text[at + i];
            if (seen >= 128) return false;
        }
        while (at < count && text[at] < 128) ++at;
        return at == count;
    }

    // Goes character by character to the next one between words.
    status run_slow(int64_t& at) {
        do {
            const status result = slow_.step(at);
            if (!result.ok()) return result;
            if (sink_.too_long()) skip_letters(at);
        } while (at < length_ && !sink_.full() && !sink_.between_words());
        return {};
    }

    // More letters of a word that is too long change nothing.
    void skip_letters(int64_t& at) {
        constexpr int kBlock = 64;
        while (at + kBlock <= length_) {
            uint8_t lowered[kBlock];
            ascii_masks masks;
            functions_.classify(Char{})(text_ + at, kBlock, classes_, lowered, masks);
            if ((masks.letters & ~masks.starts) != ~0ull) break;
            at += kBlock;
            sink_.lengthen(at - 1);
        }
        const int64_t from = at;
        constexpr int kStep = 16;
        for (bool letters = true; letters && at + kStep <= length_; at += letters ? kStep : 0) {
            for (int i = 0; i < kStep; ++i) letters &= is_plain_letter(text_[at + i]);
        }
        if (at > from) sink_.lengthen(at - 1);
    }

    bool is_plain_letter(uint32_t code) const {
        if (sizeof(Char) > 2 && code >= 0x10000) return classes_.is_astral_letter(code);
        constexpr uint32_t kLetterFlag = uint32_t{char_classes::kLetter} << char_classes::kFlagsShift;
        return (classes_.wide[code] & (char_classes::kUnusual | kLetterFlag)) == kLetterFlag;
    }

    const char_classes& classes_;
    const scan_functions& functions_;
    scanner<Char, Sink> slow_;
    const Char* text_;
    int64_t length_;
    bool ascii_;
    word_chunk& chunk_;
    Sink& sink_;
};

}  // namespace encoder_engine
