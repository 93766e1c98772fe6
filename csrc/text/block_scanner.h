// Takes plain ASCII words 64 characters at a time, and leaves the rest to the character scanner.
#pragma once

#include <algorithm>
#include <cstdint>

#include "text/ascii_block.h"
#include "text/scanner.h"
#include "text/word_sinks.h"
#include "text/wordpiece_encoder.h"

namespace encoder_engine {

// Gives 64 characters as bytes, 255 for any that is not ASCII.
inline const uint8_t* as_bytes(const uint8_t* text, uint8_t*) { return text; }
template <typename Char>
const uint8_t* as_bytes(const Char* text, uint8_t* buffer) {
    for (int i = 0; i < 64; ++i) {
        buffer[i] = static_cast<uint8_t>(text[i] < 128 ? text[i] : 255);
    }
    return buffer;
}

template <typename Char, bool with_spans>
class block_scanner {
public:
    block_scanner(const wordpiece_encoder& encoder, const Char* text, int64_t length,
                  word_sink<with_spans>& sink)
        : classes_(encoder.classes()), classify_(encoder.classify()),
          slow_(encoder.table(), encoder.raw_added(), text, length, sink), text_(text),
          length_(length), sink_(sink) {}

    status run() {
        int64_t at = 0;
        while (at < length_ && !sink_.full()) {
            const int taken = take_block(at);
            at += taken;
            if (resume_slow_ && at < length_) {
                const status result = run_slow(at);
                if (!result.ok()) return result;
            }
        }
        sink_.finish();
        return {};
    }

private:
    static uint64_t first_bits(int count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

    void classify(int64_t at, int count) {
        uint8_t buffer[64];
        if (count == 64) {
            classify_(as_bytes(text_ + at, buffer), classes_, block_);
            return;
        }
        Char tail[64] = {};
        std::copy_n(text_ + at, count, tail);
        classify_(as_bytes(tail, buffer), classes_, block_);
    }

    // Emits the words that surely end within the next 64 characters; returns the characters done.
    // resume_slow_ then says whether something else follows.
    int take_block(int64_t at) {
        const int count = static_cast<int>(std::min<int64_t>(64, length_ - at));
        classify(at, count);
        const uint64_t known = block_.letters | block_.singles | block_.spaces;
        const uint64_t strange = ~known & first_bits(count);
        int done = strange != 0 ? __builtin_ctzll(strange) : count;
        const bool open = strange != 0 || at + count < length_;
        if (open && done > 0 && (block_.letters >> (done - 1) & 1)) {
            // The last word may go on behind what is known: leave it.
            const uint64_t gaps = ~block_.letters & first_bits(done);
            done = gaps == 0 ? 0 : 64 - __builtin_clzll(gaps);
        }
        const uint64_t letters = block_.letters & first_bits(done);
        const uint64_t singles = block_.singles & first_bits(done);
        uint64_t starts = (letters & ~(letters << 1)) | singles;
        uint64_t ends = (letters & ~(letters >> 1)) | singles;
        sink_.begin_block();
        for (; starts != 0; starts &= starts - 1, ends &= ends - 1) {
            const int start = __builtin_ctzll(starts);
            const int size = __builtin_ctzll(ends) - start + 1;
            sink_.ascii_word(block_.lowered + start, size, at + start);
        }
        resume_slow_ = strange != 0 || done == 0;
        return done;
    }

    // Goes character by character up to an ASCII letter that starts a word.
    status run_slow(int64_t& at) {
        do {
            const status result = slow_.step(at);
            if (!result.ok()) return result;
            if (sink_.too_long()) skip_letters(at);
        } while (at < length_ && !sink_.full() && !(sink_.between_words() && starts_word(at)));
        return {};
    }

    bool starts_word(int64_t at) const {
        return text_[at] < 128 && (classes_.flags[text_[at]] & ascii_classes::kLetter) != 0;
    }

    // Of a word that is too long, more letters make no difference.
    void skip_letters(int64_t& at) {
        while (at + 64 <= length_) {
            classify(at, 64);
            if (block_.letters != ~0ull) return;
            at += 64;
            sink_.lengthen(at - 1);
        }
    }

    const ascii_classes& classes_;
    classify_function classify_;
    scanner<Char, word_sink<with_spans>> slow_;
    const Char* text_;
    int64_t length_;
    word_sink<with_spans>& sink_;
    ascii_block block_;
    bool resume_slow_ = false;
};

}  // namespace encoder_engine
