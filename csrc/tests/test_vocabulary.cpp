// Vocabularies: order, look-up, and what the reader of tokenizer.json takes and leaves.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "tests/checks.h"
#include "text/json/vocabulary_reader.h"

namespace encoder_engine {
namespace {

json_vocabulary read(const std::string& value) {
    return read_json_vocabulary("{\"a\": [{\"model\": 0}], \"model\": {\"x\": \"}\", \"vocab\": " + value +
                                "}, \"rest\": not looked at");
}

}  // namespace

void test_vocabularies_sort_and_find_any_bytes() {
    std::mt19937 random(5);
    for (int round = 0; round < 40; ++round) {
        token_list tokens;
        std::map<std::string, int64_t> places;
        // Few different bytes, so that many share their first eight, or sixteen, or all.
        const unsigned num_bytes = round % 2 == 0 ? 2 : 256;
        for (int i = 0; i < 400; ++i) {
            std::string text(random() % 20, '\0');
            for (char& c : text) c = static_cast<char>(random() % num_bytes);
            places[text] = i;
            tokens.add(text, 3 * i);
        }
        const vocabulary made(std::move(tokens));
        const std::vector<uint32_t> sorted = made.sorted();
        CHECK(sorted.size() == places.size() && made.num_distinct() == places.size() && made.ids_ascend());
        size_t rank = 0;
        for (const auto& [text, place] : places) {
            CHECK(sorted[rank++] == place);
            CHECK(made.find(text) == place);
            CHECK(made.find(text + "\x7F\x7F") < 0 || places.count(text + "\x7F\x7F") == 1);
        }
        CHECK(made.find_id(3 * 399) == 399 && made.find_id(1) == -1 && made.find_id(1200) == -1);
    }
    CHECK(vocabulary(token_list{}).find("") == -1);
}

void test_vocabularies_of_files() {
    const json_vocabulary object = read(" {\"u\" : 0,\n\"\\u00e9\\ud83d\\ude00\\n\": 7 }");
    CHECK(object.tokens != nullptr && object.tokens->tokens().size() == 2);
    CHECK(object.tokens->find("\xC3\xA9\xF0\x9F\x98\x80\n") == 1 && object.tokens->find_id(7) == 1);
    const json_vocabulary array = read("[[\"a\", -1.5], [\"a\", 2e-3], [\"\", 7]]");
    CHECK(array.tokens != nullptr && array.scores == std::vector<double>({-1.5, 2e-3, 7.0}));
    CHECK(array.tokens->find("a") == 1 && array.tokens->num_distinct() == 2);
    CHECK(!std::signbit(read("[[\"a\", -0]]").scores[0]) && std::signbit(read("[[\"a\", -0.0]]").scores[0]));
    const char* const refused[] = {
        "{}", "[]", "{\"a\": 1, \"b\": 1}", "{\"a\": 1, \"a\": 2}", "{\"a\": 01}", "{\"a\": -1}",
        "{\"a\": 16777216}", "{\"a\": 1.0}", "{\"a\": 1,}", "{\"\\ud800\": 1}", "{\"\xED\xA0\x80\": 1}",
        "{\"\xC0\x80\": 1}", "{\"\xF4\x90\x80\x80\": 1}", "{\"\t\": 1}", "{\"\\x\": 1}", "[[\"a\", 1e999]]",
        "[[\"a\", NaN]]", "[[\"a\", .5]]", "[[\"a\", 1, 2]]", "[[\"a\", 1]", "[[\"a\", 1234567890123456]]"};
    for (const char* value : refused) CHECK(read(value).tokens == nullptr);
    CHECK(vocabulary({{"a", 0}, {"b", 1}}).has_lines("a\nb\n"));
    CHECK(vocabulary({{"a", 0}, {"b", 1}}).has_lines("a\nb"));
    CHECK(!vocabulary({{"a", 0}, {"b", 1}}).has_lines("a\nb\nc"));
    CHECK(!vocabulary({{"a", 0}, {"b", 2}}).has_lines("a\nb\n"));
    CHECK(vocabulary({{" a", 0}, {"\xE2\x80\xA8", 1}, {"", 2}}).has_lines(" a\n\xE2\x80\xA8\n\n"));
    CHECK(!vocabulary({{"a", 0}, {"", 1}}).has_lines("a\n"));
    CHECK(!vocabulary({{"a\r", 0}}).has_lines("a\r\n"));
}

}  // namespace encoder_engine
