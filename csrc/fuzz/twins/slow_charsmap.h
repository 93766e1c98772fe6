// Compiles a table of normalization rules, and applies the table to a whole text, step by step.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "text/normalizer/normalizer.h"

namespace encoder_engine {

using charsmap_rules = std::map<std::string, std::string>;

// As charsmap reads them: the size of the trie, the trie, the replacements.
std::string compile_rules(const charsmap_rules& rules);

// Applies the rules: each grapheme cluster of fewer than six bytes is replaced by its shortest
// matching key, other text character by character.
void apply_rules(const charsmap_rules& rules, const sourced_text& text, sourced_text& out);

}  // namespace encoder_engine
