// SentencePiece's models against their twins: the plain steps over the whole text, every instruction
// set and character width, limits, warm caches, several texts at once, threads.
#include <iterator>
#include <memory>

#include "common/cpu_features.h"
#include "fuzz/fuzz_checks.h"
#include "fuzz/twins/drawn_rules.h"
#include "fuzz/twins/slow_sentencepiece.h"

namespace encoder_engine {
namespace {

// Where marks stand in pieces.
enum class marks : uint8_t { at_start, only_at_start, at_end, anywhere };
enum class symbols : uint8_t { none, some, with_marks };

struct choices {
    int rules;  // of rule_sets(), or -1
    marks placed;
    symbols defined;
    bool bytes, prefix, removes, escapes, suffix;
};

// All that a published model can say, and what none does; the first few take the fast path.
constexpr choices kChoices[] = {
    {0, marks::at_start, symbols::none, false, true, true, true, false},
    {0, marks::at_start, symbols::some, false, true, true, true, false},
    {1, marks::at_start, symbols::none, false, true, true, true, false},
    {2, marks::at_start, symbols::some, false, true, true, true, false},
    {-1, marks::at_start, symbols::none, false, true, true, true, false},
    {0, marks::at_start, symbols::none, true, true, true, true, false},
    {1, marks::at_start, symbols::some, true, true, true, true, false},
    {2, marks::at_start, symbols::none, true, true, true, true, false},
    {0, marks::only_at_start, symbols::none, false, true, true, true, false},
    {1, marks::only_at_start, symbols::some, false, true, true, true, false},
    {2, marks::only_at_start, symbols::none, true, true, true, true, false},
    {-1, marks::only_at_start, symbols::some, false, true, true, true, false},
    {0, marks::at_start, symbols::with_marks, false, true, true, true, false},
    {0, marks::anywhere, symbols::none, false, true, true, true, false},
    {1, marks::anywhere, symbols::with_marks, true, true, true, true, false},
    {0, marks::at_start, symbols::none, false, false, true, true, false},
    {1, marks::at_start, symbols::some, false, true, false, true, false},
    {2, marks::anywhere, symbols::with_marks, false, false, false, true, false},
    {0, marks::at_end, symbols::none, false, true, true, true, true},
    {1, marks::at_end, symbols::some, true, true, false, true, true},
    {2, marks::at_end, symbols::none, false, false, true, true, true},
    {1, marks::at_start, symbols::none, false, true, true, true, true},
    {1, marks::at_start, symbols::some, false, true, true, false, false},
    {2, marks::anywhere, symbols::none, true, true, false, false, false},
    {0, marks::at_end, symbols::with_marks, false, true, true, false, true},
};

std::vector<std::string> make_symbols(symbols defined) {
    std::vector<std::string> out;
    if (defined == symbols::none) return out;
    out = {"ab", "==", "x", "\u00E9", "[M]", "e\u0301", "a b", "\U0001F600", "\u4E2D\u56FD\u4E2D", "-"};
    if (defined == symbols::with_marks) {
        for (const char* more : {"\u2581is\u2581", "\u2581the", "w\u2581", " low "}) out.push_back(more);
    }
    return out;
}

// What scores are times: sums that float holds in any order, that it rounds, and that begin anew soon,
// with some words remembered and with none.
constexpr float kScales[] = {1.0f, 1.1f, 0.37f, 97.3f, 911.3f};

unigram_pieces make_pieces(const choices& wanted, float scale) {
    const char* const words[] = {
        "low", "er", "lower", "lowe", "rs", "a", "ab", "ba", "aba", "want", "ed", "un", "ing", "\u4E2D",
        "\u4E2D\u56FD", "\u00E9", "e\u0301", "\u0301", "\u304B", "\u304C", "\uAC00", "\U0001F600", "fi",
        "...", ".", ",", "'", "-", "1", "abcdefghijklmnopqrst", "ss", "\u03C3", "\u0915\u094D", "_", "\u00E1",
        "\u20441"};
    const std::string mark = wanted.escapes ? "\u2581" : " ";
    std::vector<std::string> texts;
    int number = 0;
    for (const std::string word : words) {
        texts.push_back(word);
        const bool front = wanted.placed != marks::at_end;
        if (++number % 3 != 0) texts.push_back(front ? mark + word : word + mark);
        if (wanted.placed == marks::anywhere && number % 4 == 0) {
            texts.push_back(word + mark);
            texts.push_back(word + mark + "a");
        }
    }
    if (wanted.placed != marks::only_at_start) texts.push_back(mark);
    if (wanted.placed == marks::anywhere) texts.push_back(mark + mark);
    for (char c = 'a'; c < 'w'; ++c) {
        texts.emplace_back(1, c);
        texts.push_back(std::string(1, c) + static_cast<char>('a' + (c * 5 + 3) % 23));
    }
    unigram_pieces out;
    out.rounding = score_rounding::narrow;
    out.mark = wanted.escapes ? 0x2581 : ' ';
    out.unknown_score = -24.0f * scale;
    int32_t id = 0;  // of unknown characters; the pieces' follow
    for (const std::string& text : texts) {
        ++id;
        out.pieces.push_back({text, id, scale * (-2.0f - 0.25f * static_cast<float>(id * 7 % 29))});
    }
    for (const std::string& symbol : make_symbols(wanted.defined)) {
        out.pieces.push_back({symbol, ++id, -0.5});
    }
    return out;
}

sentencepiece_options make_options(const choices& wanted, const unigram_pieces& pieces) {
    sentencepiece_options out;
    if (wanted.rules >= 0) out.charsmap = rule_sets()[static_cast<size_t>(wanted.rules)].bytes;
    out.symbols = make_symbols(wanted.defined);
    out.add_dummy_prefix = wanted.prefix;
    out.remove_extra_whitespaces = wanted.removes;
    out.escape_whitespaces = wanted.escapes;
    out.whitespace_as_suffix = wanted.suffix;
    out.scores.resize(pieces.pieces.size() + 1);
    for (const auto& piece : pieces.pieces) {
        out.scores[static_cast<size_t>(piece.id)] = static_cast<float>(piece.score);
    }
    const auto first = static_cast<int32_t>(pieces.pieces.size()) + 1;
    for (int byte = 0; wanted.bytes && byte < 256; ++byte) out.byte_ids.push_back(first + byte);
    return out;
}

// A tokenizer by the last instruction set, in a batch, by each of the others, and their twin.
struct subject {
    std::vector<std::unique_ptr<sequence_encoder>> others;
    std::unique_ptr<slow_sentencepiece> twin;
    std::unique_ptr<batch_encoder> batch;
    std::unique_ptr<encoder_scratch> warm;
};

std::unique_ptr<subject> make_subject(const choices& wanted, size_t index) {
    auto made = std::make_unique<subject>();
    const unigram_pieces pieces = make_pieces(wanted, kScales[index % std::size(kScales)]);
    const sentencepiece_options options = make_options(wanted, pieces);
    const auto model = make_model(pieces);
    const auto make = [&] { return std::make_unique<sentencepiece_encoder>(model, options); };
    const auto levels = supported_instruction_sets();
    for (const instruction_set level : levels) {
        FUZZ_CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        if (level != levels.back()) made->others.push_back(make());
    }
    const charsmap_rules none;
    made->twin = std::make_unique<slow_sentencepiece>(
        pieces, wanted.rules < 0 ? none : rule_sets()[static_cast<size_t>(wanted.rules)].table,
        options);
    made->batch = make_batch(make());
    made->warm = made->batch->encoder().make_scratch();
    return made;
}

const subject& find_subject(uint8_t choice) {
    static std::unique_ptr<subject> known[std::size(kChoices)];
    const size_t index = choice % std::size(kChoices);
    if (known[index] == nullptr) known[index] = make_subject(kChoices[index], index);
    return *known[index];
}

void check(const uint8_t* data, size_t size) {
    fuzz_input input(data, size);
    const subject& on = find_subject(input.byte());
    const uint8_t more = input.byte(), limit = input.byte();
    const bool with_spans = (more & 1) != 0;
    const fuzz_text text(input.text());
    const encoded whole =
        encode(on.batch->encoder(), text.views().back(), kNoLimit, with_spans, *on.warm);
    check_status(whole.result, text.codes());
    if (whole.result.ok()) check_tokens(on.twin->encode(text.codes()), whole);
    const bool with_cold = (more & 30) == 2;
    check_encoder(on.batch->encoder(), text, limit, whole, *on.warm, with_cold);
    for (const auto& encoder : on.others) {
        check_encoder(*encoder, text, limit, whole, *on.warm, with_cold);
    }
    if ((more & 14) == 0) check_batch(*on.batch, text.views().front(), whole, limit);
    if ((more & 6) == 4) check_rows(*on.batch, text.codes(), limit, with_spans, *on.warm);
}

}  // namespace
}  // namespace encoder_engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    encoder_engine::check(data, size);
    return 0;
}
