// Cuts some hundred characters at a time into normalized words.
//
// How it works: characters are classified in blocks of 64 by vector instructions into bit masks
// (letters, word starts, blocking characters); words are the runs between set bits, so the work per
// character is a few bit operations. A chunk keeps the words' normalized units, their starts, sizes
// and cache keys. It holds whole words only: the last word is left to the next chunk unless the text
// ends after it, and the chunk ends before the word of a blocking character, which needs rules that
// look at its neighbours.
#pragma once

#include <cstdint>

#include "text/words/char_classes.h"
#include "text/text_view.h"
#include "text/words/word_cutter.h"

namespace encoder_engine {

// What a chunk is cut from: the rest of a text, from a place between words.
template <typename Char>
struct text_rest {
    const Char* text;
    int64_t length;
};

// Takes up to kCharacters characters, as far as they are ASCII; the first has to be. The last word
// is left for the next chunk unless the text ends after it; so is everything from a blocking
// character's word on.
template <typename Char>
void scan_ascii(const text_rest<Char>& rest, const char_classes& classes,
                const scan_functions& functions, word_chunk& chunk);

// Takes up to kCharacters characters of any kind, in the same way.
template <typename Char>
void scan_wide(const text_rest<Char>& rest, const char_classes& classes,
               const scan_functions& functions, word_chunk& chunk);

// Takes whole ASCII texts, as many as fit and hold nothing that blocks; returns how many. The words
// of text i have their first units from firsts[i] on, below firsts[i + 1].
int scan_texts(const text_view* texts, int64_t count, const char_classes& classes,
               const scan_functions& functions, word_chunk& chunk, uint16_t* firsts);

constexpr int kMaxTextsInChunk = word_chunk::kCharacters / 64;

}  // namespace encoder_engine
