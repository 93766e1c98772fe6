// Compiled models with flipped bits: refused, or used without a step out of bounds.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "common/zeroed_memory.h"
#include "tests/checks.h"
#include "tests/model_pieces.h"
#include "text/sentencepiece/encoder.h"
#include "text/unigram/encoder.h"
#include "text/wordpiece/encoder.h"

namespace encoder_engine {
namespace {

constexpr int kRounds = 300;

struct image_memory {
    std::unique_ptr<char[], free_memory> bytes;
    size_t size;
    explicit image_memory(const std::string& image)
        : bytes(static_cast<char*>(allocate_zeros(image.size()))), size(image.size()) {
        std::memcpy(bytes.get(), image.data(), size);
    }
    // Most bytes are zeros to which nothing leads: the others have their bits flipped more often.
    void flip(std::mt19937& random, const std::vector<size_t>& telling) {
        for (unsigned left = 1 + random() % 3; left > 0; --left) {
            const size_t place = random() % 4 == 0 ? random() % size : telling[random() % telling.size()];
            bytes[place] ^= static_cast<char>(1 << random() % 8);
        }
    }
    image_reader reader() const { return {bytes.get(), size}; }
};

void encode_texts(const sequence_encoder& encoder, std::mt19937& random) {
    const auto scratch = encoder.make_scratch();
    for (int i = 0; i < 8; ++i) {
        const std::u32string text = random_text(random) + U" low lower lowerer ab abab";
        std::string ascii;
        for (const char32_t c : text) ascii += static_cast<char>(c < 128 ? c : U'b');
        token_buffer out;
        out.with_spans = true;
        // Twice: the second time words come from the caches.
        for (int round = 0; round < 2; ++round) {
            encoder.encode({text.data(), static_cast<int64_t>(text.size()), char_width::four}, 1 << 20,
                           *scratch, out);
            encoder.encode({ascii.data(), static_cast<int64_t>(ascii.size()), char_width::ascii},
                           1 << 20, *scratch, out);
        }
    }
}

// Maps damaged copies of an image, and encodes with those that are taken for models.
template <typename Model, typename Make>
void damage(const std::string& image, const Make& make_encoder, std::mt19937& random) {
    const image_memory whole(image);
    CHECK(Model(whole.reader()).valid());
    CHECK(Model(whole.reader()).image() == image);
    CHECK(!Model(image_reader(whole.bytes.get(), whole.size - kImageAlignment)).valid());
    std::vector<size_t> telling;
    for (size_t i = 0; i < image.size(); ++i) {
        if (image[i] != 0) telling.push_back(i);
    }
    int num_valid = 0;
    for (int round = 0; round < kRounds; ++round) {
        image_memory damaged(image);
        damaged.flip(random, telling);
        auto model = std::make_shared<Model>(damaged.reader());
        if (!model->valid()) continue;
        ++num_valid;
        encode_texts(*make_encoder(model), random);
    }
    CHECK(num_valid > kRounds / 20 && num_valid < kRounds);
}

unigram_pieces make_pieces() {
    unigram_pieces out;
    const char* texts[] = {"<unk>", "\xE2\x96\x81", "a", "b", "ab", "\xE2\x96\x81low", "er", "l", "o",
                           "w", "low", "\xE4\xB8\xAD", "\xF0\x9D\x85\xA5", "lower", "abab"};
    for (const char* text : texts) {
        const auto id = static_cast<int32_t>(out.pieces.size());
        out.pieces.push_back({text, id, -1.0 - 0.5 * id});
    }
    out.unknown_score = -20.0;
    return out;
}

}  // namespace

void test_damaged_images_are_refused_or_harmless() {
    std::mt19937 random(3);
    const auto make_unigram = [](std::shared_ptr<const unigram_model> model) {
        unigram_options options;
        options.splitting.white_space = options.splitting.metaspace = true;
        return std::make_unique<unigram_encoder>(std::move(model), std::move(options),
                                                 std::vector<added_token>{});
    };
    damage<unigram_model>(make_model(make_pieces())->image(), make_unigram, random);
    const auto make_sentencepiece = [](std::shared_ptr<const unigram_model> model) {
        return std::make_unique<sentencepiece_encoder>(std::move(model), sentencepiece_options{});
    };
    unigram_pieces narrow = make_pieces();
    narrow.rounding = score_rounding::narrow;
    damage<unigram_model>(make_model(narrow)->image(), make_sentencepiece, random);
    wordpiece_vocabulary vocabulary;
    vocabulary.tokens = {{"[UNK]", 0}, {"a", 1}, {"##b", 2}, {"low", 3}, {"##er", 4},
                         {"\xE4\xB8\xAD", 5}, {"##a", 6}};
    const auto make_wordpiece = [](std::shared_ptr<const wordpiece_model> model) {
        return std::make_unique<wordpiece_encoder>(std::move(model), normalizer_options{},
                                                   std::vector<added_token>{});
    };
    damage<wordpiece_model>(make_model(vocabulary)->image(), make_wordpiece, random);
}

}  // namespace encoder_engine
