// BPE models against their twins: merging step by step over the whole text, every instruction set and
// character width, limits, warm caches, several texts at once, threads.
#include <memory>

#include "common/cpu_features.h"
#include "fuzz/fuzz_checks.h"
#include "fuzz/twins/slow_bpe.h"
#include "text/bpe/encoder.h"

namespace encoder_engine {
namespace {

constexpr size_t kNumChoices = 24;
// Where added tokens are drawn, which the twin does not know.
constexpr size_t kFirstAdded = 18;

// A generator of its own: the same models for every process.
struct small_random {
    uint64_t state;
    size_t below(size_t count) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<size_t>(state >> 33) % count;
    }
};

normalizer_step plain(normalizer_kind kind) {
    normalizer_step step;
    step.kind = kind;
    return step;
}

normalizer_step replace(std::vector<uint32_t> pattern, std::vector<uint32_t> content) {
    normalizer_step step = plain(normalizer_kind::replace);
    step.pattern = std::move(pattern);
    step.content = std::move(content);
    return step;
}

void add_merges(bpe_file& file, std::vector<std::string> parts, std::vector<std::string> ends, size_t count,
                small_random& random) {
    for (size_t i = 0; i < count; ++i) {
        const bool last = !ends.empty() && random.below(3) == 0;
        const std::string left = parts[random.below(parts.size())];
        std::vector<std::string>& rights = last ? ends : parts;
        const std::string right = rights[random.below(rights.size())];
        if (left.size() + right.size() > 24) continue;
        const bool known = std::find(file.tokens.begin(), file.tokens.end(), left + right) != file.tokens.end();
        if (!known) {
            file.tokens.push_back(left + right);
            rights.push_back(left + right);
        }
        const size_t place = random.below(file.merges.size() + 1);
        file.merges.insert(file.merges.begin() + static_cast<std::ptrdiff_t>(place), {left, right});
    }
}

bpe_file make_bytes(size_t choice) {
    constexpr word_pattern kPatterns[] = {word_pattern::gpt2, word_pattern::digits_one,
                                          word_pattern::digits_three, word_pattern::clip,
                                          word_pattern::gpt2_digits, word_pattern::whole};
    small_random random{choice + 1};
    bpe_file file;
    file.splitting.pattern = kPatterns[choice % 6];
    file.splitting.prefix = choice % 4 == 1;
    if (file.splitting.pattern == word_pattern::clip) {
        file.rules.suffix = "</w>";
        file.steps = {plain(normalizer_kind::nfc), plain(normalizer_kind::lowercase)};
    } else {
        file.rules.ignore_merges = choice % 3 == 1;
    }
    if (choice % 6 == 1) file.steps = {plain(normalizer_kind::nfc)};
    std::vector<std::string> parts, ends;
    for (int byte = 0; byte < 256; ++byte) {
        const std::string letter = byte_letter(static_cast<uint8_t>(byte));
        file.tokens.push_back(letter);
        if (!file.rules.suffix.empty()) file.tokens.push_back(letter + file.rules.suffix);
    }
    for (const char c : std::string("abelorw \n'st1.\xC3\xA9\xE4\xB8\xAD")) {
        parts.push_back(byte_letter(static_cast<uint8_t>(c)));
        if (!file.rules.suffix.empty()) ends.push_back(parts.back() + file.rules.suffix);
    }
    add_merges(file, parts, ends, 40 + 20 * (choice % 5), random);
    return file;
}

bpe_file make_characters(size_t choice) {
    small_random random{choice + 77};
    bpe_file file;
    file.rules.symbols = bpe_symbols::characters;
    file.tokens = {"<unk>"};
    file.rules.unknown = 0;
    file.rules.fuse_unknown = choice % 2 == 0;
    file.rules.byte_fallback = choice % 3 != 0;
    for (int byte = 0; byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
        if (file.rules.byte_fallback) file.tokens.push_back(name);
    }
    file.splitting.pattern = choice % 2 == 0 ? word_pattern::blanks : word_pattern::marks;
    if (choice % 2 == 1) {
        file.splitting.metaspace = true;
        file.splitting.scheme = static_cast<prepend_scheme>(choice % 3);
    } else {
        normalizer_step prepend = plain(normalizer_kind::prepend);
        prepend.content = {bpe_model::kMark};
        file.steps = {replace({' '}, {bpe_model::kMark})};
        if (choice % 4 == 0) file.steps.insert(file.steps.begin(), prepend);
    }
    std::vector<std::string> parts;
    for (const uint32_t code : {0x61u, 0x62u, 0x65u, 0x6Cu, 0x6Fu, 0x77u, 0x72u, 0x27u, 0xE9u, 0x4E2Du, 0x2581u}) {
        parts.push_back(to_utf8(code));
        file.tokens.push_back(parts.back());
    }
    // Where marks stand only in front, words are cut there.
    std::vector<std::string> begun = choice % 4 < 2 ? parts : std::vector<std::string>(parts.begin(), parts.end() - 1);
    add_merges(file, begun, {}, 60, random);
    return file;
}

std::vector<added_token> make_added(size_t choice) {
    if (choice < kFirstAdded) return {};
    return {{{'[', 'M', ']'}, 900, false, true, false, false},
            {{'a', 'b'}, 901, choice % 2 == 0, false, true, choice % 3 == 0},
            {{' ', ' '}, 902, false, false, false, true},
            {{'l', 'o', 'w'}, 903, choice % 2 == 1, choice % 3 == 1, false, true}};
}

// A tokenizer by the last instruction set, in a batch, by each of the others, and their twin.
struct subject {
    std::vector<std::unique_ptr<sequence_encoder>> others;
    std::unique_ptr<slow_bpe> twin;  // where there are no added tokens
    std::unique_ptr<batch_encoder> batch;
    std::unique_ptr<encoder_scratch> warm;
};

std::unique_ptr<subject> make_subject(size_t choice) {
    auto made = std::make_unique<subject>();
    const bpe_file file = choice % 3 == 2 ? make_characters(choice) : make_bytes(choice);
    token_list tokens;
    for (size_t id = 0; id < file.tokens.size(); ++id) tokens.add(file.tokens[id], static_cast<int32_t>(id));
    const vocabulary known(std::move(tokens));
    const auto id_of = [&](const std::string& text) { return static_cast<int32_t>(known.find(text)); };
    std::vector<bpe_merge> merges;
    for (const auto& [left, right] : file.merges) merges.push_back({id_of(left), id_of(right), id_of(left + right)});
    const auto model = std::make_shared<bpe_model>(known, merges, file.rules);
    FUZZ_CHECK(model->merges().list().size() == merges.size());
    FUZZ_CHECK(model->refusal().why == bpe_refusal::none);
    const auto make = [&] {
        return std::make_unique<bpe_encoder>(model, file.steps, file.splitting, make_added(choice));
    };
    const auto levels = supported_instruction_sets();
    for (const instruction_set level : levels) {
        FUZZ_CHECK(choose_instruction_set(instruction_set_name(level)).empty());
        if (level != levels.back()) made->others.push_back(make());
    }
    if (choice < kFirstAdded) made->twin = std::make_unique<slow_bpe>(file);
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
