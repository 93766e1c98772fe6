// Cuts texts into sentences at line ends and behind marks that end a sentence, for many languages.
#pragma once

#include <cstdint>
#include <vector>

#include "text/text_view.h"

namespace encoder_engine {

// The characters of a sentence.
struct sentence_span {
    int64_t begin;
    int64_t end;
};

// Appends the sentences of a text, without white space around them; blank pieces are left out. A
// sentence ends at a line end; behind . ! ? or an ellipsis where white space follows; and behind an
// ideographic mark, the last of several, where a character follows. Closing quotes and brackets stay
// with the sentence before. White space is what str.isspace says.
void find_sentences(const text_view& text, std::vector<sentence_span>& out);

}  // namespace encoder_engine
