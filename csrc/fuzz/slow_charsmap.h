// Compiled rules made of a table of rules, and what a Precompiled normalizer makes of a whole text by
// that table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "text/unigram/normalizer.h"

namespace encoder_engine {

using charsmap_rules = std::map<std::string, std::string>;

// As charsmap reads them: the size of the trie, the trie, the replacements.
std::string compile_rules(const charsmap_rules& rules);

// Replaces clusters of fewer than six bytes by the shortest key they begin with, and what is left
// character by character.
void apply_rules(const charsmap_rules& rules, const sourced_text& text, sourced_text& out);

}  // namespace encoder_engine
