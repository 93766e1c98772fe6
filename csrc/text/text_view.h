// A text as Python holds it, and the bytes of one code point in UTF-8.
#pragma once

#include <cstdint>
#include <string_view>

namespace encoder_engine {

// How many bytes a character takes in the buffer; ascii promises that all are below 128.
enum class char_width : uint8_t { ascii, one, two, four };

// A borrowed string of code points: never copied, never changed.
struct text_view {
    const void* data = nullptr;
    int64_t length = 0;  // characters
    char_width width = char_width::ascii;
};

// Writes the UTF-8 form of a scalar value; returns its length, 1 to 4.
inline int write_utf8(uint32_t code, uint8_t* out) {
    if (code < 0x80) {
        out[0] = static_cast<uint8_t>(code);
        return 1;
    }
    if (code < 0x800) {
        out[0] = static_cast<uint8_t>(0xC0 | code >> 6);
        out[1] = static_cast<uint8_t>(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = static_cast<uint8_t>(0xE0 | code >> 12);
        out[1] = static_cast<uint8_t>(0x80 | (code >> 6 & 0x3F));
        out[2] = static_cast<uint8_t>(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = static_cast<uint8_t>(0xF0 | code >> 18);
    out[1] = static_cast<uint8_t>(0x80 | (code >> 12 & 0x3F));
    out[2] = static_cast<uint8_t>(0x80 | (code >> 6 & 0x3F));
    out[3] = static_cast<uint8_t>(0x80 | (code & 0x3F));
    return 4;
}

// Reads one code point of valid UTF-8 and advances.
inline uint32_t read_utf8(const uint8_t*& at) {
    const uint32_t lead = *at++;
    if (lead < 0x80) return lead;
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    uint32_t code = lead & (0x3F >> more);
    for (int i = 0; i < more; ++i) code = code << 6 | (*at++ & 0x3F);
    return code;
}

// 16-bit units of UTF-8 text: one for each character, two from four bytes on.
inline int32_t count_units(std::string_view text) {
    int32_t count = 0;
    for (const char c : text) {
        const auto byte = static_cast<uint8_t>(c);
        count += ((byte & 0xC0) != 0x80) + (byte >= 0xF0);
    }
    return count;
}

}  // namespace encoder_engine
