// Turns a fuzzer's bytes into texts: a header of choices, then UTF-8, decoded leniently.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "text/text_view.h"

// Ends the process, so that the fuzzer keeps the input.
#define FUZZ_CHECK(condition)                                                  \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            std::abort();                                                      \
        }                                                                      \
    } while (false)

namespace encoder_engine {

class fuzz_input {
public:
    fuzz_input(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

    uint8_t byte() { return at_ < end_ ? *at_++ : 0; }

    // The rest of the input as text. A byte that is not UTF-8 becomes the character of its value,
    // and lone surrogates stay: a Python str may hold any code point.
    std::u32string text() {
        std::u32string out;
        while (at_ < end_) out.push_back(character());
        return out;
    }

private:
    char32_t character() {
        const uint8_t lead = *at_++;
        const int more = lead >= 0xF0 && lead < 0xF5 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC2 ? 1 : 0;
        if (lead >= 0xF5 || more == 0 || end_ - at_ < more) return lead;
        uint32_t code = lead & (0x3Fu >> more);
        for (int i = 0; i < more; ++i) {
            if ((at_[i] & 0xC0) != 0x80) return lead;
            code = code << 6 | (at_[i] & 0x3Fu);
        }
        if (code >= 0x110000) return lead;
        at_ += more;
        return code;
    }

    const uint8_t* at_;
    const uint8_t* end_;
};

// A text in buffers of every width that can hold it, each exactly as long as the text, so that a
// sanitizer sees what reads beyond it.
class fuzz_text {
public:
    explicit fuzz_text(const std::u32string& text) : four_(text.begin(), text.end()) {
        uint32_t all = 0;
        for (const uint32_t code : four_) all |= code;
        if (all < 0x100) one_.assign(four_.begin(), four_.end());
        if (all < 0x10000) two_.assign(four_.begin(), four_.end());
        one_.shrink_to_fit();
        two_.shrink_to_fit();
        const auto length = static_cast<int64_t>(four_.size());
        if (all < 0x80) views_.push_back({one_.data(), length, char_width::ascii});
        if (all < 0x100) views_.push_back({one_.data(), length, char_width::one});
        if (all < 0x10000) views_.push_back({two_.data(), length, char_width::two});
        views_.push_back({four_.data(), length, char_width::four});
    }
    fuzz_text(const fuzz_text&) = delete;
    fuzz_text& operator=(const fuzz_text&) = delete;

    // The narrowest first: what Python holds.
    const std::vector<text_view>& views() const { return views_; }
    const std::vector<uint32_t>& codes() const { return four_; }

private:
    std::vector<uint32_t> four_;
    std::vector<uint16_t> two_;
    std::vector<uint8_t> one_;
    std::vector<text_view> views_;
};

}  // namespace encoder_engine
