// Strings, numbers and whatever is skipped.
#include "text/json/json_cursor.h"

#include <cmath>

#include "text/json/json_number.h"
#include "text/text_view.h"

namespace encoder_engine {

bool json_cursor::skip_string(std::string_view& raw) {
    if (peek() != '"') return false;
    const char* const first = ++at_;
    for (;;) {
        const void* found = at_ < end_ ? std::memchr(at_, '"', static_cast<size_t>(end_ - at_)) : nullptr;
        if (found == nullptr) return false;
        at_ = static_cast<const char*>(found);
        const char* before = at_;
        while (before > first && before[-1] == '\\') --before;
        const bool escaped = (at_ - before) % 2 != 0;
        ++at_;
        if (escaped) continue;
        raw = {first, static_cast<size_t>(at_ - 1 - first)};
        return true;
    }
}

bool json_cursor::skip_value() {
    skip_space();
    std::string_view raw;
    int64_t depth = 0;
    do {
        const char c = peek();
        if (c == '"') {
            if (!skip_string(raw)) return false;
            continue;
        }
        if (c == '{' || c == '[') {
            ++depth;
        } else if (c == '}' || c == ']') {
            --depth;
        } else if (depth == 0) {
            const char* const first = at_;
            while (at_ < end_ && *at_ != ',' && *at_ != '}' && *at_ != ']' && !is_space(*at_)) ++at_;
            return at_ > first;
        }
        if (at_ == end_) return false;
        ++at_;
    } while (depth > 0);
    return depth == 0;
}

// One character, of two bytes or more in its shortest form and no surrogate.
bool json_cursor::skip_character(const char*& at, const char* end) {
    const auto byte = [&](int i) { return i < end - at ? static_cast<uint8_t>(at[i]) : uint8_t{0}; };
    const uint8_t lead = byte(0), second = byte(1);
    int size = 0;
    uint8_t low = 0x80, high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
        size = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        size = 3;
        if (lead == 0xE0) low = 0xA0;
        if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        size = 4;
        if (lead == 0xF0) low = 0x90;
        if (lead == 0xF4) high = 0x8F;
    } else {
        return false;
    }
    if (second < low || second > high) return false;
    for (int i = 2; i < size; ++i) {
        if ((byte(i) & 0xC0) != 0x80) return false;
    }
    at += size;
    return true;
}

bool json_cursor::is_utf8(const char* at, const char* end) {
    while (at < end) {
        // Most characters of vocabularies have one byte or two.
        if (static_cast<uint8_t>(*at) < 0x80) {
            ++at;
        } else if (end - at >= 2 && (at[0] & 0xE0) == 0xC0 && (at[0] & 0x1E) != 0 && (at[1] & 0xC0) == 0x80) {
            at += 2;
        } else if (!skip_character(at, end)) {
            return false;
        }
    }
    return true;
}

// The first byte from the place on that is a quote, a backslash or a control character.
const char* json_cursor::plain_end() const {
    constexpr uint64_t kOnes = 0x0101010101010101, kHighs = 0x8080808080808080;
    const char* at = at_;
    for (; end_ - at >= 8; at += 8) {
        uint64_t eight;
        std::memcpy(&eight, at, 8);
        const uint64_t quotes = eight ^ kOnes * '"', slashes = eight ^ kOnes * '\\';
        // The lowest byte that is marked is right: what is above it may be a carry's.
        const uint64_t found = ((eight - kOnes * 0x20) | (quotes - kOnes) | (slashes - kOnes)) & ~eight & kHighs;
        if (found != 0) return at + (__builtin_ctzll(found) >> 3);
    }
    while (at < end_ && static_cast<uint8_t>(*at) >= 0x20 && *at != '"' && *at != '\\') ++at;
    return at;
}

bool json_cursor::take_plain_string(std::string_view& raw) {
    if (!take('"')) return false;
    const char* const first = at_;
    at_ = plain_end();
    const bool whole = peek() == '"';
    raw = {first, static_cast<size_t>(at_ - first)};
    at_ = whole ? at_ + 1 : first - 1;
    return whole;
}

bool json_cursor::take_sound_string(std::string_view& raw) {
    const char* const before = at_;
    if (!take_plain_string(raw)) return false;
    if (is_utf8(raw.data(), raw.data() + raw.size())) return true;
    at_ = before;
    return false;
}

bool json_cursor::take_word(std::string_view word) {
    if (num_left() < word.size() || std::string_view(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
}

bool json_cursor::read_string(std::string& out) {
    if (!take('"')) return false;
    for (;;) {
        const char* const first = at_;
        at_ = plain_end();
        if (at_ == end_ || !is_utf8(first, at_)) return false;
        const char c = *at_++;
        if (c != '"' && c != '\\') return false;
        out.append(first, static_cast<size_t>(at_ - 1 - first));
        if (c == '"') return true;
        if (!read_escape(out)) return false;
    }
}

// The part of an escape behind the backslash.
bool json_cursor::read_escape(std::string& out) {
    static constexpr char kEscapes[] = "\"\\/bfnrt";
    static constexpr char kMeanings[] = "\"\\/\b\f\n\r\t";
    if (at_ == end_) return false;
    const char c = *at_++;
    if (c != 'u') {
        const char* found = c == '\0' ? nullptr : std::strchr(kEscapes, c);
        if (found == nullptr) return false;
        out.append(kMeanings + (found - kEscapes), 1);
        return true;
    }
    uint32_t code = 0;
    if (!read_unit(code)) return false;
    if (code >= 0xD800 && code < 0xE000) {
        uint32_t low = 0;
        if (code >= 0xDC00 || end_ - at_ < 2 || at_[0] != '\\' || at_[1] != 'u') return false;
        at_ += 2;
        if (!read_unit(low) || low < 0xDC00 || low >= 0xE000) return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    uint8_t bytes[4];
    const int size = write_utf8(code, bytes);
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    return true;
}

// Four hexadecimal digits.
bool json_cursor::read_unit(uint32_t& unit) {
    if (end_ - at_ < 4) return false;
    unit = 0;
    for (int i = 0; i < 4; ++i) {
        const char c = *at_++;
        const char lower = static_cast<char>(c | 0x20);
        if (!is_digit(c) && !(lower >= 'a' && lower <= 'f')) return false;
        unit = unit << 4 | static_cast<uint32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return true;
}

bool json_cursor::read_id(int32_t most, int32_t& out) {
    skip_space();
    const char* const first = at_;
    if (!skip_digits() || at_ - first > 8) return false;
    out = 0;
    for (const char* digit = first; digit < at_; ++digit) out = out * 10 + (*digit - '0');
    return out <= most;
}

// The digits of an integer: zero stands alone.
bool json_cursor::skip_digits() {
    const char* const first = at_;
    while (at_ < end_ && is_digit(*at_)) ++at_;
    return at_ > first && (*first != '0' || at_ - first == 1);
}

// A number by the grammar; `integer`: without point and exponent.
bool json_cursor::skip_number(bool& integer) {
    at_ += peek() == '-';
    if (!skip_digits()) return false;
    integer = true;
    if (peek() == '.') {
        integer = false;
        const char* const digits = ++at_;
        while (at_ < end_ && is_digit(*at_)) ++at_;
        if (at_ == digits) return false;
    }
    if (peek() == 'e' || peek() == 'E') {
        integer = false;
        ++at_;
        if (peek() == '+' || peek() == '-') ++at_;
        const char* const digits = at_;
        while (at_ < end_ && is_digit(*at_)) ++at_;
        if (at_ == digits) return false;
    }
    return true;
}

bool json_cursor::skip_number() {
    constexpr int kMostDigits = 1000;
    const char* const first = at_;
    bool integer = false;
    return skip_number(integer) && at_ - first <= kMostDigits;
}

bool json_cursor::read_score(double& out) {
    // An integer of so many digits is a double.
    constexpr int kExactDigits = 15;
    skip_space();
    const char* const first = at_;
    bool integer = false;
    if (!skip_number(integer)) return false;
    if (integer && at_ - first - (*first == '-') > kExactDigits) return false;
    out = read_json_number(first, static_cast<size_t>(at_ - first));
    // Python's integers have no negative zero.
    if (integer && out == 0.0) out = 0.0;
    return std::isfinite(out);
}

}  // namespace encoder_engine
