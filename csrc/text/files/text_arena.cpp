// Checks and widens UTF-8.
#include "text/files/text_arena.h"

#include <algorithm>
#include <cstring>

namespace encoder_engine {
namespace {

// The greatest byte, or one above 127 that is no less: it tells the width that characters need.
uint8_t greatest_byte(std::string_view text) {
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + text.size();
    uint8_t greatest = 0;
    for (; at < end; ++at) greatest = std::max(greatest, *at);
    return greatest;
}

bool is_ascii(std::string_view text) {
    const char* at = text.data();
    const char* const end = at + text.size();
    uint64_t bits = 0, eight = 0;
    for (; end - at >= 8; at += 8) {
        std::memcpy(&eight, at, 8);
        bits |= eight;
    }
    for (; at < end; ++at) bits |= static_cast<uint8_t>(*at);
    return (bits & 0x8080808080808080) == 0;
}

// Reads one character in its shortest form, no surrogate; false for any other bytes.
bool read_character(const uint8_t*& at, const uint8_t* end, uint32_t& code) {
    const uint32_t lead = *at;
    if (lead < 0x80) {
        code = lead;
        ++at;
        return true;
    }
    const int size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead < 0xC2 || lead > 0xF4 || end - at < size) return false;
    code = lead & (0x7F >> size);
    for (int i = 1; i < size; ++i) {
        if ((at[i] & 0xC0) != 0x80) return false;
        code = code << 6 | (at[i] & 0x3F);
    }
    at += size;
    if (size == 2) return true;
    return size == 3 ? code >= 0x800 && (code < 0xD800 || code >= 0xE000) : code >= 0x10000 && code < 0x110000;
}

template <typename Char>
bool widen(std::string_view text, Char* out, int64_t& length) {
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + text.size();
    Char* const first = out;
    uint32_t code = 0;
    while (at < end) {
        if (!read_character(at, end, code)) return false;
        *out++ = static_cast<Char>(code);
    }
    length = out - first;
    return true;
}

}  // namespace

void* text_arena::take(size_t num_bytes) {
    num_bytes = (num_bytes + 7) & ~size_t{7};
    if (num_bytes > left_) {
        left_ = std::max(num_bytes, kBlock);
        blocks_.emplace_back(new uint8_t[left_]);
        next_ = blocks_.back().get();
    }
    void* const taken = next_;
    next_ += num_bytes;
    left_ -= num_bytes;
    return taken;
}

std::string_view text_arena::keep(std::string_view bytes) {
    auto* const copy = static_cast<char*>(take(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), copy);
    return {copy, bytes.size()};
}

bool text_arena::view(std::string_view utf8, text_view& out) {
    if (is_ascii(utf8)) {
        out = {utf8.data(), static_cast<int64_t>(utf8.size()), char_width::ascii};
        return true;
    }
    const uint8_t greatest = greatest_byte(utf8);
    // Up to U+00FF the leads are C2 and C3.
    const size_t width = greatest < 0xC4 ? 1 : greatest < 0xF0 ? 2 : 4;
    void* const to = take(width * utf8.size());
    out.data = to;
    out.width = width == 1 ? char_width::one : width == 2 ? char_width::two : char_width::four;
    const bool sound = width == 1   ? widen(utf8, static_cast<uint8_t*>(to), out.length)
                       : width == 2 ? widen(utf8, static_cast<uint16_t*>(to), out.length)
                                    : widen(utf8, static_cast<uint32_t*>(to), out.length);
    // What was not used goes back.
    const size_t used = (width * static_cast<size_t>(sound ? out.length : 0) + 7) & ~size_t{7};
    left_ += static_cast<size_t>(next_ - static_cast<uint8_t*>(to)) - used;
    next_ = static_cast<uint8_t*>(to) + used;
    return sound;
}

}  // namespace encoder_engine
