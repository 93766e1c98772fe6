// Unit tests of the core: trie, truncation, tables, batches, threads, CPU kernels; for sanitizer builds above all.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

#include "common/cpu_features.h"
#include "tests/checks.h"
#include "tests/model_pieces.h"
#include "text/batch/encode_batch.h"
#include "text/wordpiece/normalize_text.h"
#include "text/trie.h"
#include "text/unicode/tables.h"
#include "text/wordpiece/encoder.h"

namespace encoder_engine {
namespace {

void test_trie_holds_exactly_its_keys() {
    std::mt19937 random(1);
    std::vector<std::pair<std::string, int32_t>> keys;
    for (int i = 0; i < 5000; ++i) {
        std::string key(1 + random() % 5, '\0');
        for (char& c : key) c = static_cast<char>(random() % (i % 2 == 0 ? 256 : 4));
        keys.emplace_back(key, i);
    }
    std::sort(keys.begin(), keys.end());
    keys.erase(std::unique(keys.begin(), keys.end(),
                           [](const auto& a, const auto& b) { return a.first == b.first; }),
               keys.end());
    double_array_trie trie;
    trie.build({keys.begin(), keys.end()});
    for (const auto& [key, value] : keys) {
        const int32_t node = trie.walk(double_array_trie::kRoot, key);
        CHECK(node >= 0 && trie.value(node) == value);
    }
    double_array_trie empty;
    empty.build({});
    CHECK(empty.walk(double_array_trie::kRoot, "a") < 0);
}

void test_truncation_shares_room() {
    kept_lengths kept{};
    CHECK(share_room(truncation_strategy::longest_first, 7, true, 10, 10, kept).ok());
    CHECK(kept.first == 3 && kept.second == 4);
    CHECK(share_room(truncation_strategy::longest_first, 7, true, 11, 10, kept).ok());
    CHECK(kept.first == 4 && kept.second == 3);
    CHECK(share_room(truncation_strategy::only_first, 7, true, 10, 7, kept).code ==
          error_code::cannot_truncate);
    std::vector<token_range> ranges;
    CHECK(overflow_ranges(10, 4, 1, false, ranges).ok());
    CHECK(ranges.size() == 3 && ranges[2].start == 6 && ranges[2].stop == 10);
    CHECK(overflow_ranges(10, 4, 4, false, ranges).code == error_code::stride_too_large);
}

void test_unicode_lookups() {
    uint32_t out[kMaxDecomposition];
    CHECK(unicode_decompose(0x1EC7, out) == 3 && out[0] == 'e');
    CHECK(unicode_decompose(0xAC01, out) == 3 && out[2] == 0x11A8);
    CHECK(unicode_decompose(0xF900, out) == 1 && out[0] == 0x8C48);
    CHECK(unicode_lowercase(0x130, out) == 2);
    CHECK(unicode_combining_class(0x10FFFF) == 0);
    CHECK(unicode_properties(0x10FFFF) == 0);
}

wordpiece_encoder make_encoder(bool normalized) {
    wordpiece_vocabulary vocabulary;
    vocabulary.tokens = {{"[UNK]", 0}, {"a", 1}, {"##b", 2}, {"low", 3}, {"##er", 4}, {"\xE4\xB8\xAD", 5}};
    std::vector<added_token> added{{{'[', 'M', ']'}, 6, false, true, true, false}};
    if (normalized) added.push_back({{'l', 'o', 'w', 'e', 'r'}, 7, true, false, false, true});
    return wordpiece_encoder(make_model(vocabulary), normalizer_options{}, added);
}

void test_random_batches_encode_the_same_on_any_number_of_threads() {
    std::mt19937 random(2);
    for (int round = 0; round < 200; ++round) {
        row_template single{{{piece_kind::special, {8}}, {piece_kind::first, {}}, {piece_kind::special, {9}}}, {}, {}};
        row_template pair = single;
        pair.pieces.push_back({piece_kind::second, {}});
        const batch_encoder batch(std::make_unique<wordpiece_encoder>(make_encoder(round % 2 == 0)),
                                  single, pair);
        std::vector<std::u32string> texts;
        for (int i = 0; i < 64; ++i) texts.push_back(random_text(random));
        std::vector<text_view> views;
        for (const auto& text : texts) {
            views.push_back({text.data(), static_cast<int64_t>(text.size()), char_width::four});
        }
        batch_input input{{views.data(), nullptr}, {round % 3 == 0 ? views.data() : nullptr, nullptr}, 64};
        encode_options options;
        options.with_spans = round % 4 < 2;
        options.strategy = round % 5 == 0 ? truncation_strategy::none : truncation_strategy::longest_first;
        options.max_length = 2 + static_cast<int64_t>(random() % 20);
        options.left = round % 7 == 0;
        options.overflow = round % 6 == 0;
        options.num_threads = 1;
        batch_output one, many;
        const status first = batch.encode(input, options, one);
        options.num_threads = 4;
        const status second = batch.encode(input, options, many);
        CHECK(first.code == second.code && first.row == second.row);
        CHECK(!first.ok() || (one.num_tokens == many.num_tokens && one.num_rows == many.num_rows));
        batch.recycle(one);
        batch.recycle(many);
    }
}

void test_a_batch_takes_no_more_threads_than_it_has_processors() {
#if defined(__linux__)
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;  // of more than 1,024
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    }
    row_template single{{{piece_kind::first, {}}}, {}, {}};
    const batch_encoder batch(std::make_unique<wordpiece_encoder>(make_encoder(true)), single, single);
    const std::string text(20000, 'a');
    const std::vector<text_view> views(32, {text.data(), static_cast<int64_t>(text.size()), char_width::ascii});
    const auto count_threads = [&] {
        batch_output out;
        CHECK(batch.encode({{views.data(), nullptr}, {}, 32}, encode_options{}, out).ok());
        const int count = static_cast<int>(out.workers.size());
        batch.recycle(out);
        return count;
    };
    CHECK(count_threads() <= CPU_COUNT(&allowed));
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK(count_threads() == 1);
    CHECK(sched_setaffinity(0, sizeof allowed, &allowed) == 0);
#endif
}

void test_callers_may_share_an_encoder() {
    row_template single{{{piece_kind::first, {}}}, {}, {}};
    const batch_encoder batch(std::make_unique<wordpiece_encoder>(make_encoder(true)), single, single);
    const std::string text(20000, 'a');
    const text_view view{text.data(), static_cast<int64_t>(text.size()), char_width::ascii};
    const std::vector<text_view> views(32, view);
    std::vector<std::thread> callers;
    for (int i = 0; i < 6; ++i) {
        callers.emplace_back([&] {
            for (int round = 0; round < 20; ++round) {
                encode_options options;
                options.num_threads = 3;
                batch_output out;
                CHECK(batch.encode({{views.data(), nullptr}, {}, 32}, options, out).ok());
                CHECK(out.num_tokens == 32);
                batch.recycle(out);
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace encoder_engine

// With an argument `threads`: only what runs on several, for ThreadSanitizer, under which all is slow.
int main(int count, char** arguments) {
    const bool only_threads = count > 1 && std::string(arguments[1]) == "threads";
    const std::string refused =
        encoder_engine::choose_instruction_set(std::getenv("ENCODER_ENGINE_ISA"));
    if (!refused.empty()) {
        std::printf("%s\n", refused.c_str());
        return 1;
    }
    encoder_engine::test_random_batches_encode_the_same_on_any_number_of_threads();
    encoder_engine::test_callers_may_share_an_encoder();
    encoder_engine::test_threads_may_share_a_plan();
    encoder_engine::test_models_of_many_tokens_know_what_is_made_and_what_is_shorter();
    encoder_engine::test_words_have_the_same_pieces_with_their_path_and_without();
    encoder_engine::test_known_words_have_their_own_pieces();
    encoder_engine::test_words_of_one_hash_are_kept_to_a_number();
    encoder_engine::test_many_callers_share_a_pool();
    if (!only_threads) {
        encoder_engine::test_a_forked_child_has_threads_of_its_own();
        encoder_engine::test_a_forked_child_runs_a_plan_of_threads();
        encoder_engine::test_quotas_of_control_groups();
        encoder_engine::test_a_batch_takes_no_more_threads_than_it_has_processors();
        encoder_engine::test_trie_holds_exactly_its_keys();
        encoder_engine::test_truncation_shares_room();
        encoder_engine::test_unicode_lookups();
        encoder_engine::test_attention_on_every_instruction_set();
        encoder_engine::test_attention_statistics_on_every_instruction_set();
        encoder_engine::test_avx_vnni_has_the_bits_of_avx2();
        encoder_engine::test_packed_linear_on_every_instruction_set();
        encoder_engine::test_quantized_linear_on_every_instruction_set();
        encoder_engine::test_rows_on_every_instruction_set();
        encoder_engine::test_whole_plans_on_every_instruction_set();
        encoder_engine::test_vocabularies_of_files();
        encoder_engine::test_vocabularies_sort_and_find_any_bytes();
    }
    std::printf(encoder_engine::failures == 0 ? "ok\n" : "%d failures\n", encoder_engine::failures);
    return encoder_engine::failures == 0 ? 0 : 1;
}
