// WordPiece against its twins: the plain steps, the character scanner, every instruction set and
// character width, limits, warm caches, threads.
#include <iterator>
#include <memory>

#include "common/cpu_features.h"
#include "fuzz/fuzz_checks.h"
#include "fuzz/twins/slow_wordpiece.h"
#include "text/wordpiece/scanner.h"
#include "text/wordpiece/word_sinks.h"
#include "text/wordpiece/encoder.h"

namespace encoder_engine {
namespace {

struct choices {
    normalizer_options options;  // clean_text, handle_cjk, strip_accents, lowercase
    bool raw_added, normalized_added;
    int64_t max_word_characters;
};

// Few enough to keep the tables of all, which take far longer to build than a text to encode.
constexpr choices kChoices[] = {
    {{true, true, true, true}, false, false, 100},
    {{true, true, true, true}, true, false, 100},
    {{true, true, true, true}, false, true, 100},
    {{true, true, true, true}, true, true, 16},
    {{true, true, true, true}, false, false, 16},
    {{true, true, true, true}, false, false, 15},
    {{true, true, true, true}, true, false, 5},
    {{true, true, false, false}, false, false, 100},
    {{true, true, false, false}, true, true, 100},
    {{false, false, false, false}, false, false, 100},
    {{false, false, false, false}, true, true, 100},
    {{true, false, true, false}, false, false, 100},
    {{false, true, true, true}, false, false, 100},
    {{false, true, true, true}, true, false, 17},
    {{true, true, false, true}, false, false, 100},
    {{false, true, false, true}, true, false, 100},
};

wordpiece_vocabulary make_vocabulary(int64_t max_word_characters) {
    const char* const pieces[] = {
        "[UNK]", "[CLS]", "[SEP]", "##", "##-", "-", ".", "'", "`", "|", "\u4E2D", "\u00E9", "##\u00E9",
        "\u0301", "##\u0301", "i\u0307", "\u0430", "##\u0430", "\u1100\u1161", "##\u11A8", "\uAC00", "un", "##aff",
        "##able", "want", "##want", "##ed", "wa", "runn", "##ing", "low", "##er", "lower", "lowest",
        "abcdefghijklmnop", "abcdefghijklmno", "##abcdefghijklmnop", "\U0001F600", "\U00010428", "\u1E9E",
        "ss", "##ss", "\u03C3", "##\u03C2", "\u3042", "##\u3042", "\u0E01", "\u0915", "##\u094D",
        "\u00A7", "\u2014", "\U00020000"};
    wordpiece_vocabulary vocabulary;
    int32_t id = 0;
    for (const char* piece : pieces) vocabulary.tokens.emplace_back(piece, id++);
    for (char c = 'a'; c < 'x'; ++c) {  // x, y, z and the digits are unknown
        vocabulary.tokens.emplace_back(std::string(1, c), id++);
        if (c % 3 != 0) vocabulary.tokens.emplace_back("##" + std::string(1, c), id++);
        vocabulary.tokens.emplace_back("A" + std::string(1, c), id++);
    }
    vocabulary.max_word_characters = max_word_characters;
    return vocabulary;
}

std::vector<added_token> make_added(bool raw, bool normalized) {
    std::vector<added_token> added;
    if (raw) {
        added.push_back({{'[', 'M', ']'}, 500, false, true, true, false});
        added.push_back({{'a', 'b'}, 501, true, false, false, false});
        added.push_back({{' ', 'x'}, 502, false, false, false, false});
        added.push_back({{0x301}, 503, false, false, false, false});
    }
    if (normalized) {
        added.push_back({{'l', 'o', 'w'}, 504, true, false, false, true});
        added.push_back({{'e', ' ', '.'}, 505, false, true, true, true});
        added.push_back({{0x4E2D}, 506, false, false, true, true});
    }
    return added;
}

// One tokenizer by each instruction set, and its twin.
struct subject {
    std::vector<std::unique_ptr<wordpiece_encoder>> encoders;
    std::unique_ptr<slow_wordpiece> twin;  // where there are no added tokens
    std::unique_ptr<batch_encoder> batch;
    std::vector<std::unique_ptr<encoder_scratch>> warm;  // per encoder, used by every text
};

std::unique_ptr<subject> make_subject(const choices& wanted) {
    auto made = std::make_unique<subject>();
    const wordpiece_vocabulary vocabulary = make_vocabulary(wanted.max_word_characters);
    const auto model = make_model(vocabulary);
    const auto added = make_added(wanted.raw_added, wanted.normalized_added);
    const auto make = [&] {
        return std::make_unique<wordpiece_encoder>(model, wanted.options, added);
    };
    for (const instruction_set level : supported_instruction_sets()) {
        FUZZ_CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        made->encoders.push_back(make());
        made->warm.push_back(made->encoders.back()->make_scratch());
    }
    if (added.empty()) {
        made->twin = std::make_unique<slow_wordpiece>(vocabulary, wanted.options);
    }
    made->batch = make_batch(make());
    return made;
}

const subject& find_subject(uint8_t choice) {
    static std::unique_ptr<subject> known[std::size(kChoices)];
    const size_t index = choice % std::size(kChoices);
    if (known[index] == nullptr) known[index] = make_subject(kChoices[index]);
    return *known[index];
}

// The character scanner alone, without chunks of words and without their caches.
template <typename Char, bool with_spans>
void scan(const wordpiece_encoder& encoder, const text_view& text, encoded& out) {
    static wordpiece_scratch scratch;  // of which it uses no cache
    word_sink<with_spans> words(encoder.model(), scratch, out.tokens, kNoLimit);
    const auto* chars = static_cast<const Char*>(text.data);
    if (encoder.text_table() == nullptr) {
        out.result = scanner<Char, word_sink<with_spans>>(
                         encoder.table(), encoder.raw_added(), chars, text.length, words)
                         .run();
        return;
    }
    text_sink<with_spans> segments(words, encoder.normalized_added(), scratch);
    out.result = scanner<Char, text_sink<with_spans>>(*encoder.text_table(), encoder.raw_added(),
                                                      chars, text.length, segments)
                     .run();
}

encoded scan_four(const wordpiece_encoder& encoder, const text_view& text, bool with_spans) {
    encoded out;
    out.tokens.with_spans = with_spans;
    with_spans ? scan<uint32_t, true>(encoder, text, out)
               : scan<uint32_t, false>(encoder, text, out);
    return out;
}

void check(const uint8_t* data, size_t size) {
    fuzz_input input(data, size);
    const subject& on = find_subject(input.byte());
    const uint8_t more = input.byte(), limit = input.byte();
    const bool with_spans = (more & 1) != 0;
    const fuzz_text text(input.text());
    const encoded whole = scan_four(*on.encoders[0], text.views().back(), with_spans);
    if (whole.result.ok() && on.twin != nullptr) {
        check_ids(on.twin->encode(text.codes()), whole);
    }
    if (whole.result.ok() && with_spans) {
        check_spans(whole, static_cast<int64_t>(text.codes().size()));
    }
    for (size_t i = 0; i < on.encoders.size(); ++i) {
        check_encoder(*on.encoders[i], text, limit, whole, *on.warm[i], (more & 30) == 2);
    }
    if ((more & 14) == 0) check_batch(*on.batch, text.views().front(), whole, limit);
}

}  // namespace
}  // namespace encoder_engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    encoder_engine::check(data, size);
    return 0;
}
