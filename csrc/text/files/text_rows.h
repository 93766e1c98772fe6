// Rows of text from the lines of files, without a string for each.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/files/text_arena.h"
#include "text/text_view.h"

namespace encoder_engine {

enum class line_format : uint8_t { text, json };

struct line_rules {
    line_format format = line_format::text;
    std::string key;            // of JSON: the member with the text
    int64_t most_bytes = 0;     // of a line with its end
    int64_t most_characters = 0;  // of a text
};

// The texts of some lines, in the memory of the file or in their own.
struct text_rows {
    std::vector<text_view> views;
    std::vector<text_arena> arenas;
    int64_t num_bytes = 0;  // of lines
};

// Adds a row for each line of `file` from byte `begin` on, until the lines have some `wanted` bytes, and
// returns the place behind the last line that was added. It stops before a line that is not certain to be
// a sound one: what is wrong with it, if anything, a slower reader must say. Lines end with LF or CR LF, or
// with the file.
int64_t add_lines(std::string_view file, int64_t begin, int64_t wanted, const line_rules& rules, int num_threads,
                  text_rows& out);

}  // namespace encoder_engine
