// Unigram against its twins: the plain steps over the whole text, every instruction set and
// character width, limits, warm caches, threads.
#include <cctype>
#include <iterator>
#include <memory>

#include "common/cpu_features.h"
#include "fuzz/fuzz_checks.h"
#include "fuzz/twins/drawn_rules.h"
#include "fuzz/twins/slow_unigram.h"

namespace encoder_engine {
namespace {

unigram_pieces make_pieces() {
    const char* const pieces[] = {
        "<unk>", "\u2581", "\u2581low", "low", "er", "\u2581lower", "lowe", "rs", "\u2581a", "ab", "ba", "aba",
        "\u2581want", "want", "ed", "\u2581un", "ing", "\u4E2D", "\u4E2D\u56FD", "\u00E9", "e\u0301", "\u0301", "\u304B",
        "\u304C", "\u30AB", "\uAC00", "\U0001F600", "fi", "...", ".", ",", "'", "-", "1", "2", "\u2581\u2581", "<s>",
        "abcdefghijklmnopqrst", "\u2581abcdefghijklmn", "ss", "\u03C3", "i", "\u00DF", "\u0915\u094D", "\u200D"};
    unigram_pieces out;
    int32_t id = 0;
    for (const char* piece : pieces) {
        out.pieces.push_back({piece, id, id == 0 ? 0.0 : -2.0 - 0.37 * (id * 7 % 23)});
        ++id;
    }
    for (char c = 'a'; c < 'x'; ++c) {
        out.pieces.push_back({std::string(1, c), id, -5.0 - 0.25 * (id % 9)});
        ++id;
        out.pieces.push_back({std::string(1, c) + static_cast<char>('a' + (c * 5 + 3) % 23), id, -6.5});
        ++id;
    }
    for (int byte = 0; byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", byte);
        out.pieces.push_back({name, id, -20.0});
        ++id;
    }
    double least = 0.0;
    for (const auto& piece : out.pieces) least = std::min(least, piece.score);
    out.unknown_score = least - 10.0;
    return out;
}

std::vector<int32_t> byte_ids(const unigram_pieces& pieces, bool all) {
    std::vector<int32_t> out(256);
    const auto first = static_cast<int32_t>(pieces.pieces.size()) - 256;
    for (int byte = 0; byte < 256; ++byte) out[static_cast<size_t>(byte)] = first + byte;
    if (!all) out[0x9F] = -1;
    return out;
}

normalizer_step plain(normalizer_kind kind) {
    normalizer_step step;
    step.kind = kind;
    return step;
}

normalizer_step fold_spaces() {
    normalizer_step step = plain(normalizer_kind::replace_runs);
    step.least = 2;
    step.content = {' '};
    return step;
}

normalizer_step replace(std::vector<uint32_t> pattern, std::vector<uint32_t> content) {
    normalizer_step step = plain(normalizer_kind::replace);
    step.pattern = std::move(pattern);
    step.content = std::move(content);
    return step;
}

normalizer_step strip(bool left, bool right) {
    normalizer_step step = plain(normalizer_kind::strip);
    step.left = left;
    step.right = right;
    return step;
}

normalizer_step rules(size_t set) {
    normalizer_step step = plain(normalizer_kind::charsmap);
    step.rules = rule_sets()[set].compiled;
    return step;
}

constexpr size_t kNumWithoutRules = 12;
constexpr size_t kNumChoices = 24;

// Steps with compiled rules: by themselves, and among others.
std::vector<normalizer_step> make_steps_with_rules(size_t choice) {
    using kind = normalizer_kind;
    const normalizer_step lower = plain(kind::lowercase);
    switch (choice) {
        case 0: case 1: case 2: return {rules(choice), fold_spaces()};
        case 3: case 4: case 5: return {rules(choice - 3)};
        case 6: return {replace({'`', '`'}, {'"'}), plain(kind::nfkd), plain(kind::strip_accents), lower,
                        rules(0), fold_spaces()};
        case 7: return {plain(kind::nfkc), rules(1), fold_spaces()};
        case 8: return {rules(2), rules(1), fold_spaces()};
        case 9: return {strip(true, true), rules(2)};
        case 10: return {rules(1), lower, plain(kind::nfc), fold_spaces()};
        default: return {rules(1), fold_spaces()};
    }
}

unigram_options make_options_with_rules(size_t choice, const unigram_pieces& pieces) {
    unigram_options out;
    out.steps = make_steps_with_rules(choice);
    out.splitting.metaspace = true;
    out.splitting.white_space = choice % 4 == 3 || choice == 4 || choice == 5;
    if (choice == 9) out.splitting.scheme = prepend_scheme::never;
    if (choice % 4 == 1) out.ids.bytes = byte_ids(pieces, choice != 5);
    return out;
}

// The normalizers, splittings and kinds of unknown characters that published files combine.
unigram_options make_options(size_t choice, const unigram_pieces& pieces) {
    if (choice >= kNumWithoutRules) return make_options_with_rules(choice - kNumWithoutRules, pieces);
    using kind = normalizer_kind;
    unigram_options out;
    out.splitting.metaspace = true;
    switch (choice) {
        case 0: out.steps = {plain(kind::nfkc), fold_spaces()}; break;
        case 1: out.steps = {plain(kind::nfkc), plain(kind::lowercase)}; break;
        case 2: out.steps = {plain(kind::nfkd), plain(kind::strip_accents), plain(kind::lowercase)}; break;
        case 3: break;
        case 4: out.steps = {strip(true, true), fold_spaces()}; break;
        case 5: out.steps = {replace({'`', '`'}, {'"'}), plain(kind::nfc)}; break;
        case 6: out.steps = {plain(kind::nfd), fold_spaces(), strip(false, true)}; break;
        case 7: out.steps = {replace({'a', 'b'}, {'b', 'a', 'b'}), plain(kind::nfkc)}; break;
        default: out.steps = {plain(kind::nfkc), fold_spaces()}; break;
    }
    out.splitting.white_space = choice % 4 == 0 || choice == 9;
    out.splitting.split = choice != 3 && choice != 10;
    if (choice == 5 || choice == 11) out.splitting.scheme = prepend_scheme::never;
    if (choice % 3 == 1) out.ids.bytes = byte_ids(pieces, choice != 4);
    return out;
}

std::vector<added_token> make_added(size_t choice) {
    if (choice < 9 || (choice >= kNumWithoutRules && choice + 1 < kNumChoices)) return {};
    std::vector<added_token> added{{{'[', 'M', ']'}, 900, false, true, false, false},
                                   {{'a', 'b'}, 901, true, false, true, false}};
    if (choice == 11) added.push_back({{'l', 'o', 'w'}, 902, false, true, true, true});
    return added;
}

// A tokenizer by the last instruction set, in a batch, by each of the others, and their twin.
struct subject {
    std::vector<std::unique_ptr<sequence_encoder>> others;
    std::unique_ptr<slow_unigram> twin;  // where there are no added tokens
    std::unique_ptr<batch_encoder> batch;
    std::unique_ptr<encoder_scratch> warm;
};

std::unique_ptr<subject> make_subject(size_t choice) {
    auto made = std::make_unique<subject>();
    const unigram_pieces pieces = make_pieces();
    const unigram_options options = make_options(choice, pieces);
    const auto added = make_added(choice);
    const auto model = make_model(pieces);
    const auto make = [&] { return std::make_unique<unigram_encoder>(model, options, added); };
    const auto levels = supported_instruction_sets();
    for (const instruction_set level : levels) {
        FUZZ_CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        if (level != levels.back()) made->others.push_back(make());
    }
    if (added.empty()) made->twin = std::make_unique<slow_unigram>(pieces, options);
    made->batch = make_batch(make());
    made->warm = made->batch->encoder().make_scratch();
    return made;
}

const subject& find_subject(uint8_t choice) {
    static std::unique_ptr<subject> known[kNumChoices];
    const size_t index = choice % kNumChoices;
    if (known[index] == nullptr) known[index] = make_subject(index);
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
    if (whole.result.ok() && on.twin != nullptr) check_tokens(on.twin->encode(text.codes()), whole);
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
