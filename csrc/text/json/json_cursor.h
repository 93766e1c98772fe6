// A cursor in the bytes of a JSON file, and the parsing steps that move it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace encoder_engine {

// Each step returns whether it succeeded. After a failed step the position is undefined.
class json_cursor {
public:
    explicit json_cursor(std::string_view bytes)
        : begin_(bytes.data()), at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

    size_t place() const { return static_cast<size_t>(at_ - begin_); }
    size_t num_left() const { return static_cast<size_t>(end_ - at_); }
    // The byte at the place, 0 at the end: JSON has none outside of strings.
    char peek() const { return at_ < end_ ? *at_ : '\0'; }

    void skip_space() {
        while (at_ < end_ && is_space(*at_)) {
            ++at_;
            // Files are indented, XLM-R's by 4 to 8 spaces before each of a million lines.
            uint64_t eight = 0;
            while (end_ - at_ >= 8 && (std::memcpy(&eight, at_, 8), eight == kSpaces)) at_ += 8;
        }
    }
    // Takes one character, and the space before it.
    bool take(char wanted) {
        skip_space();
        if (peek() != wanted) return false;
        ++at_;
        return true;
    }
    // Skips a string; `raw` is what stands between the quotes, escapes and all.
    bool skip_string(std::string_view& raw);
    // Skips any value; checks only its brackets and strings.
    bool skip_value();

    // Reads a string by the strict grammar and appends it as UTF-8; false for a lone surrogate too.
    bool read_string(std::string& out);
    // Takes a string without escapes as it stands, unless there are some: `raw` may be no UTF-8. Goes
    // back to the quote where it takes none.
    bool take_plain_string(std::string_view& raw);
    // The same, of a string that is UTF-8.
    bool take_sound_string(std::string_view& raw);
    // Skips a number by the strict grammar, of at most 1,000 digits: Python reads no integer of 5,000.
    bool skip_number();
    // Takes a word, without the space before it.
    bool take_word(std::string_view word);
    // Reads an integer from 0 to `most`, which has at most 8 digits.
    bool read_id(int32_t most, int32_t& out);
    // Reads a finite number, as files.read_json and float() do.
    bool read_score(double& out);

private:
    static constexpr uint64_t kSpaces = 0x2020202020202020;

    static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
    static bool is_digit(char c) { return c >= '0' && c <= '9'; }
    bool skip_digits();
    bool skip_number(bool& integer);
    bool read_escape(std::string& out);
    const char* plain_end() const;
    bool read_unit(uint32_t& unit);
    static bool skip_character(const char*& at, const char* end);
    static bool is_utf8(const char* at, const char* end);

    const char* begin_;
    const char* at_;
    const char* end_;
};

}  // namespace encoder_engine
