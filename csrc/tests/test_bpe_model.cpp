// Models of many tokens, whose trie and levels are worked out side by side: what each token is made of.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/checks.h"
#include "text/bpe/model/model.h"
#include "text/bpe/segmenter.h"

namespace encoder_engine {
namespace {

struct drawn_tokens {
    std::vector<std::string> texts;
    std::unordered_map<std::string, int32_t> ids;

    int32_t add(const std::string& text) {
        const auto [found, fresh] = ids.emplace(text, static_cast<int32_t>(texts.size()));
        if (fresh) texts.push_back(text);
        return found->second;
    }
};

// Symbols, merges of two earlier tokens, and tokens that no merge makes.
bpe_model draw(int num_merges, bool ignore_merges, drawn_tokens& drawn, std::vector<bpe_merge>& merges) {
    std::mt19937 random(3);
    const std::string letters = "abcdefghijklmnopqrstuvwxyz0123456789";
    bpe_rules rules;
    rules.symbols = bpe_symbols::characters;
    rules.unknown = drawn.add("<unk>");
    rules.ignore_merges = ignore_merges;
    std::vector<int32_t> parts;
    for (const char c : letters) parts.push_back(drawn.add(std::string(1, c)));
    for (int i = 0; i < num_merges; ++i) {
        // Mostly tokens of a few letters.
        const size_t most = random() % 8 == 0 ? parts.size() : std::min<size_t>(parts.size(), 1500);
        const int32_t left = parts[random() % most], right = parts[random() % letters.size()];
        const std::string text = drawn.texts[static_cast<size_t>(left)] + drawn.texts[static_cast<size_t>(right)];
        if (text.size() > 40) continue;
        const int32_t merged = drawn.add(text);
        merges.push_back({left, right, merged});
        parts.push_back(merged);
        if (i % 9 == 0) drawn.add(text + "zzz");
    }
    std::shuffle(merges.begin(), merges.end(), random);
    token_list list;
    for (size_t id = 0; id < drawn.texts.size(); ++id) list.add(drawn.texts[id], static_cast<int32_t>(id));
    return bpe_model(vocabulary(std::move(list)), merges, rules);
}

bool is_made(const bpe_model& model, const drawn_tokens& drawn, int32_t id) {
    bpe_model::merging state;
    for (const char c : drawn.texts[static_cast<size_t>(id)]) {
        state.symbols.push_back(drawn.ids.at(std::string(1, c)));
    }
    model.merge(state);
    return state.symbols.size() == 1 && state.symbols[0] == id;
}

// Letters of the model, and now and then one that it does not have.
std::string draw_word(std::mt19937& random, size_t size) {
    std::string word;
    while (word.size() < size) word += random() % 30 == 0 ? '#' : "abcdefghijklmnopqrstuvwxyz0123456789"[random() % 36];
    return word;
}

std::vector<std::pair<int32_t, uint32_t>> cut(bpe_segmenter& segmenter, const std::string& word, const bpe_path* path) {
    pod_vector<bpe_piece> pieces;
    segmenter.cut(reinterpret_cast<const uint8_t*>(word.data()), static_cast<int64_t>(word.size()), path, pieces);
    std::vector<std::pair<int32_t, uint32_t>> out;
    for (int64_t i = 0; i < pieces.size(); ++i) out.emplace_back(pieces[i].id, pieces[i].size);
    return out;
}

}  // namespace

void test_words_have_the_same_pieces_with_their_path_and_without() {
    std::mt19937 random(5);
    drawn_tokens drawn;
    std::vector<bpe_merge> merges;
    const bpe_model model = draw(4000, false, drawn, merges);
    bpe_segmenter with(model), without(model);
    int num_paths = 0, num_full = 0, num_left_out = 0;
    for (int round = 0; round < 3000; ++round) {
        std::vector<std::string> words;
        for (int i = 0; i < bpe_paths::kMostWords; ++i) {
            const size_t size = i == 0 ? bpe_paths::kMaxBytes : 1 + random() % (random() % 8 == 0 ? 200 : 12);
            const bool again = i > 0 && random() % 4 == 0;
            std::string word = again ? words[random() % words.size()] : draw_word(random, size);
            // Of one size and with the same first 8 bytes as another.
            if (again && word.size() > 8 && random() % 2 == 0) word.back() = 'a';
            words.push_back(std::move(word));
        }
        bpe_paths paths;
        for (size_t i = 0; i < words.size(); ++i) {
            words[i].reserve(words[i].size() + 8);  // readable behind the word
            paths.add(static_cast<int>(3 * i), reinterpret_cast<const uint8_t*>(words[i].data()),
                      static_cast<int64_t>(words[i].size()));
        }
        with.find(paths);
        for (size_t i = 0; i < words.size(); ++i) {
            const bpe_path* const path = paths.of(static_cast<int>(3 * i));
            num_paths += path != nullptr;
            num_left_out += path == nullptr;
            num_full += path != nullptr && path->size == bpe_path::kMost;
            CHECK(cut(with, words[i], path) == cut(without, words[i], nullptr));
        }
    }
    CHECK(num_paths > 0 && num_full > 0 && num_left_out > 0);
}

void test_models_of_many_tokens_know_what_is_made_and_what_is_shorter() {
    for (const bool many : {false, true}) {
        for (const bool ignore_merges : {false, true}) {
            drawn_tokens drawn;
            std::vector<bpe_merge> merges;
            const bpe_model model = draw(many ? 60000 : 300, ignore_merges, drawn, merges);
            CHECK(model.refusal().why == bpe_refusal::none);
            CHECK(!many || drawn.texts.size() > 20000);
            const auto same = [](const bpe_merge& a, const bpe_merge& b) {
                return a.left == b.left && a.right == b.right && a.merged == b.merged;
            };
            const std::vector<bpe_merge> listed = model.merges().list();
            CHECK(std::equal(listed.begin(), listed.end(), merges.begin(), merges.end(), same));
            int num_made = 0;
            for (int32_t id = 1; id < static_cast<int32_t>(drawn.texts.size()); ++id) {
                const std::string& text = drawn.texts[static_cast<size_t>(id)];
                const bool made = is_made(model, drawn, id);
                num_made += made;
                CHECK(model.token(id).made() == made);
                uint64_t node = model.trie().root();
                int32_t shorter = -1;
                for (size_t at = 0; at < text.size(); ++at) {
                    if (at > 0 && byte_trie::is_inner(node)) shorter = byte_trie::token(node);
                    node = model.trie().child(node, static_cast<uint8_t>(text[at]));
                    CHECK(byte_trie::found(node, static_cast<uint8_t>(text[at])));
                }
                CHECK(byte_trie::token(node) == (made || ignore_merges ? id : -1));
                CHECK(byte_trie::is_inner(node) == made);
                CHECK(!(made || ignore_merges) || model.token(id).shorter() == shorter);
            }
            CHECK(num_made > 100 && num_made < static_cast<int>(drawn.texts.size()) - 1);
        }
    }
}

}  // namespace encoder_engine
