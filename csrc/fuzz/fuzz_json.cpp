// The reader of vocabularies on any bytes: what it takes is sound, and is read again from what is
// written of it. The first byte says what stands around the rest.
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>

#include "fuzz/fuzz_input.h"
#include "text/json/vocabulary_reader.h"

namespace encoder_engine {
namespace {

// A string of JSON, all but letters and digits as escapes or as they are.
std::string quoted(std::string_view text, bool escaped) {
    std::string out = "\"";
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    const uint8_t* const end = at + text.size();
    while (at < end) {
        const uint8_t* const first = at;
        const uint32_t code = read_utf8(at);
        if (code >= 0x20 && code != '"' && code != '\\' && !escaped) {
            out.append(reinterpret_cast<const char*>(first), static_cast<size_t>(at - first));
            continue;
        }
        uint32_t units[2] = {code, 0};
        if (code >= 0x10000) {
            units[0] = 0xD800 + ((code - 0x10000) >> 10);
            units[1] = 0xDC00 + ((code - 0x10000) & 0x3FF);
        }
        for (int i = 0; i < (code >= 0x10000 ? 2 : 1); ++i) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04X", units[i]);
            out += escape;
        }
    }
    return out + '"';
}

std::string written(const json_vocabulary& from, bool escaped) {
    const token_list& tokens = from.tokens->tokens();
    const bool object = from.scores.empty();
    std::string out = object ? "{" : "[";
    for (size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0) out += ", ";
        const std::string text = quoted(tokens.text(i), escaped);
        if (object) {
            out += text + ": " + std::to_string(tokens.id(i));
        } else {
            char number[40];
            // With a point or an exponent, as an integer of many digits is another reader's.
            std::snprintf(number, sizeof number, "%.16e", from.scores[i]);
            out += "[" + text + ", " + number + "]";
        }
    }
    return "{\"model\": {\"vocab\": " + out + (object ? "}}}" : "]}}");
}

void check_sound(const json_vocabulary& found, std::string_view file) {
    const token_list& tokens = found.tokens->tokens();
    FUZZ_CHECK(found.begin < found.end && found.end <= file.size());
    FUZZ_CHECK(file[found.begin] == (found.scores.empty() ? '{' : '['));
    FUZZ_CHECK(file[found.end - 1] == (found.scores.empty() ? '}' : ']'));
    FUZZ_CHECK(!tokens.empty() && found.tokens->ids_ascend());
    FUZZ_CHECK(found.scores.empty() || found.scores.size() == tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
        FUZZ_CHECK(tokens.id(i) >= 0 && tokens.id(i) <= kMaxJsonId);
        FUZZ_CHECK(found.scores.empty() || std::isfinite(found.scores[i]));
        const int64_t place = found.tokens->find(tokens.text(i));
        FUZZ_CHECK(place >= static_cast<int64_t>(i));
        FUZZ_CHECK(tokens.text(static_cast<size_t>(place)) == tokens.text(i));
        FUZZ_CHECK(found.tokens->find_id(tokens.id(i)) == static_cast<int64_t>(i));
    }
    const std::vector<uint32_t> sorted = found.tokens->sorted();
    for (size_t i = 1; i < sorted.size(); ++i) {
        FUZZ_CHECK(tokens.text(sorted[i - 1]) < tokens.text(sorted[i]));
    }
}

void check_merges(const json_vocabulary& found) {
    const auto text = [&](int32_t id) { return std::string(found.tokens->tokens().text(static_cast<size_t>(id))); };
    for (const bpe_merge& merge : *found.merges) {
        FUZZ_CHECK(text(merge.left) + text(merge.right) == text(merge.merged));
    }
}

void check_again(const json_vocabulary& found, bool escaped) {
    const json_vocabulary again = read_json_vocabulary(written(found, escaped));
    FUZZ_CHECK(again.tokens != nullptr);
    FUZZ_CHECK(again.tokens->tokens().bytes() == found.tokens->tokens().bytes());
    for (size_t i = 0; i < found.tokens->tokens().size(); ++i) {
        FUZZ_CHECK(again.tokens->tokens().id(i) == found.tokens->tokens().id(i));
    }
    FUZZ_CHECK(again.scores.size() == found.scores.size());
}

void check(const uint8_t* data, size_t size) {
    if (size == 0) return;
    static constexpr const char* kBefore[] = {"", "{\"model\":{\"vocab\":", "{\"model\":{\"vocab\":{",
                                              "{\"model\":{\"vocab\":[[\"a\",", "{\"model\":{\"vocab\":{\"a",
                                              "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"\\u00e9\":1,"
                                              "\"a\u00e9\":2,\"\":3},\"merges\":["};
    static constexpr const char* kBehind[] = {"", "}}", "}}}", "]]}}", "\":1}}}", "]}}"};
    const size_t shape = data[0] % std::size(kBefore);
    std::string text = kBefore[shape];
    text.append(reinterpret_cast<const char*>(data) + 1, size - 1);
    text += kBehind[shape];
    // Of just its size, so that a sanitizer sees a step behind the end.
    const std::unique_ptr<char[]> file(new char[text.size()]);
    std::copy(text.begin(), text.end(), file.get());
    const std::string_view bytes(file.get(), text.size());
    const json_vocabulary found = read_json_vocabulary(bytes);
    if (found.tokens == nullptr) return;
    check_sound(found, bytes);
    if (found.merges != nullptr && found.tokens->tokens().counts()) check_merges(found);
    check_again(found, data[0] >= 128);
}

}  // namespace
}  // namespace encoder_engine

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    encoder_engine::check(data, size);
    return 0;
}
