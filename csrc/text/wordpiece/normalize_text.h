// Normalization alone, for added tokens; encoding fuses normalization with the other steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "text/unicode/char_table.h"
#include "text/status.h"
#include "text/text_view.h"

namespace encoder_engine {

// A table whose payloads are code points.
std::unique_ptr<char_table> make_text_table(const normalizer_options& options);

// Appends the normalized text. The table must come from make_text_table().
status normalize_text(const text_view& text, const char_table& table, std::vector<uint32_t>& out);

}  // namespace encoder_engine
