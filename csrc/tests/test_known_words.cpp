// What a thread remembers of words: all of them or, from time to time, none; never other pieces.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/checks.h"
#include "text/bpe/known_words.h"

namespace encoder_engine {
namespace {

// Words of up to 246 bytes; what follows one must be readable.
struct drawn_word {
    std::string text;
    int64_t size;
    explicit drawn_word(int i)
        : text(std::string(static_cast<size_t>(i % 7 == 0 ? i % 240 : i % 9), 'x') + std::to_string(i)),
          size(static_cast<int64_t>(text.size())) {
        text.append(16, 'y');
    }
    const uint8_t* bytes() const { return reinterpret_cast<const uint8_t*>(text.data()); }
};

std::vector<int32_t> pieces_of(int i) {
    std::vector<int32_t> pieces(static_cast<size_t>(i % 11 == 0 ? 255 : 1 + i % 5));
    for (size_t place = 0; place < pieces.size(); ++place) pieces[place] = i + static_cast<int>(place);
    return pieces;
}

bool is_known(known_words& known, int i) {
    const drawn_word word(i);
    int32_t out[known_words::kMaxPieces];
    const int count = known.find(word.bytes(), word.size, out);
    const std::vector<int32_t> pieces = pieces_of(i);
    CHECK(count == 0 || std::equal(pieces.begin(), pieces.end(), out, out + count));
    return count > 0;
}

}  // namespace

void test_known_words_have_their_own_pieces() {
    const auto known = std::make_unique<known_words>();
    constexpr int kWords = 300000;
    int forgotten = 0;
    for (int i = 0; i < kWords; ++i) {
        const drawn_word word(i);
        const std::vector<int32_t> pieces = pieces_of(i);
        CHECK(!is_known(*known, i));
        known->keep(word.bytes(), word.size, pieces.data(), static_cast<int64_t>(pieces.size()));
        CHECK(is_known(*known, i));
        if (i % 1000 == 0) forgotten += !is_known(*known, i / 2);
    }
    CHECK(forgotten > 0 && forgotten < kWords / 1000);
    // A stretch of words: those that are found at once have their pieces.
    std::string text;
    auto starts = std::make_unique<word_starts>();
    for (int i = kWords - 40; i < kWords; ++i) {
        starts->places[starts->count++] = static_cast<uint16_t>(text.size());
        const drawn_word word(i);
        text += word.text.substr(0, static_cast<size_t>(word.size));
    }
    starts->places[starts->count] = static_cast<uint16_t>(text.size());
    text += std::string(16, 'y');
    known->look_up(reinterpret_cast<const uint8_t*>(text.data()), *starts);
    int found = 0;
    for (int i = 0; i < starts->count; ++i) {
        const std::vector<int32_t> pieces = pieces_of(kWords - 40 + i);
        const int32_t* const out = known->pieces + known_words::kMaxShort * i;
        CHECK(known->counts[i] == 0 || std::equal(pieces.begin(), pieces.end(), out, out + known->counts[i]));
        found += known->counts[i] > 0;
    }
    CHECK(found > 10);
}

// Words that share a hash: the first are found, and no look-up walks all others.
void test_words_of_one_hash_are_kept_to_a_number() {
    word_store store;
    int found = 0;
    for (int i = 0; i < 1000; ++i) {
        const drawn_word word(i);
        const int32_t piece = i;
        int32_t out = -1;
        store.insert(0, word.bytes(), word.size, &piece, 1);
        const int count = store.find(0, word.bytes(), word.size, &out);
        CHECK(count == 0 || (count == 1 && out == i));
        found += count;
    }
    CHECK(found == 64);
}

}  // namespace encoder_engine
