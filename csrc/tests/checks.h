// Checks that the unit tests of the core share.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>

#include "cpu/element.h"

namespace encoder_engine {

inline int failures = 0;

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            std::printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);        \
            ++failures;                                                        \
        }                                                                      \
    } while (false)

// Cuts off the lower bits: a drawn number needs no rounding.
inline bfloat16 narrow(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return {static_cast<uint16_t>(bits >> 16)};
}

// Random code points of every width, marks and added tokens among them.
inline std::u32string random_text(std::mt19937& random) {
    const std::u32string often = U"ab low er [M] \x302e\x301\x1d165\x4e2d\xe9\xd55c";
    std::u32string text(random() % 60, U' ');
    for (char32_t& c : text) {
        c = random() % 4 == 0 ? static_cast<char32_t>(random() % 0x110000)
                              : often[random() % often.size()];
        if (c >= 0xD800 && c < 0xE000 && random() % 50 != 0) c = U'a';
    }
    return text;
}

void test_a_forked_child_has_threads_of_its_own();
void test_a_forked_child_runs_a_plan_of_threads();
void test_attention_on_every_instruction_set();
void test_avx_vnni_has_the_bits_of_avx2();
void test_attention_statistics_on_every_instruction_set();
void test_models_of_many_tokens_know_what_is_made_and_what_is_shorter();
void test_words_have_the_same_pieces_with_their_path_and_without();
void test_known_words_have_their_own_pieces();
void test_words_of_one_hash_are_kept_to_a_number();
void test_many_callers_share_a_pool();
void test_packed_linear_on_every_instruction_set();
void test_threads_may_share_a_plan();
void test_quantized_linear_on_every_instruction_set();
void test_quotas_of_control_groups();
void test_rows_on_every_instruction_set();
void test_vocabularies_of_files();
void test_whole_plans_on_every_instruction_set();
void test_vocabularies_sort_and_find_any_bytes();

}  // namespace encoder_engine
