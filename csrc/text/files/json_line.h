// The text of a line of JSON.
#pragma once

#include <string>
#include <string_view>

namespace encoder_engine {

enum class json_text : uint8_t {
    unsure,   // not the text of a sound line, or only the exact reader can say
    plain,    // without escapes
    escaped,  // with escapes
};

// Reads the text of `key` in an object that takes all of a line. Each value is checked by the grammar of
// JSON, each object for keys that occur twice. Unsure of everything else: other values at the key, lone
// surrogates, NaN, keys with escapes, many keys, deep nesting, long numbers.
// `text` is the line's own bytes, UTF-8, where it is plain; else `buffer`.
json_text read_json_line(std::string_view line, std::string_view key, std::string& buffer, std::string_view& text);

}  // namespace encoder_engine
