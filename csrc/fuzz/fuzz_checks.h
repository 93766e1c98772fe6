// The checks of every tokenizer, whatever its model: character widths, limits, caches, threads.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/twins/slow_token.h"
#include "text/batch/encode_batch.h"

namespace encoder_engine {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct encoded {
    status result;
    token_buffer tokens;
};

inline encoded encode(const sequence_encoder& encoder, const text_view& text, int64_t limit,
               bool with_spans, encoder_scratch& scratch) {
    encoded out;
    out.tokens.with_spans = with_spans;
    out.result = encoder.encode(text, limit, scratch, out.tokens);
    return out;
}

inline bool same(const pod_vector<int32_t>& a, const pod_vector<int32_t>& b, int64_t count) {
    return a.size() >= count && b.size() >= count && std::equal(a.data(), a.data() + count, b.data());
}

inline void check_same(const encoded& found, const encoded& expected) {
    FUZZ_CHECK(found.result.code == expected.result.code);
    FUZZ_CHECK(found.result.position == expected.result.position);
    if (!expected.result.ok()) return;
    const int64_t count = expected.tokens.size();
    FUZZ_CHECK(found.tokens.size() == count);
    FUZZ_CHECK(same(found.tokens.ids, expected.tokens.ids, count));
    if (!expected.tokens.with_spans) return;
    FUZZ_CHECK(same(found.tokens.spans, expected.tokens.spans, 2 * count));
    FUZZ_CHECK(same(found.tokens.words, expected.tokens.words, count));
}

inline void check_spans(const encoded& whole, int64_t length) {
    for (int64_t i = 0; i < whole.tokens.size(); ++i) {
        const int32_t start = whole.tokens.spans.data()[2 * i];
        const int32_t stop = whole.tokens.spans.data()[2 * i + 1];
        FUZZ_CHECK(0 <= start && start < stop && stop <= length);
    }
}

// Checks a batch's rows: equal for any number of threads, and cut as the whole text would be.
inline void check_batch(const batch_encoder& batch, const text_view& text, const encoded& whole,
                 uint8_t limit) {
    const std::vector<text_view> texts(9, text);
    encode_options options;
    options.with_spans = whole.tokens.with_spans;
    options.strategy = truncation_strategy::longest_first;
    options.max_length = 2 + limit % 32;
    options.left = (limit & 32) != 0;
    for (const int threads : {1, 3}) {
        options.num_threads = threads;
        batch_output out;
        const status result = batch.encode({{texts.data(), nullptr}, {}, 9}, options, out);
        // Characters past the limit are not read: a surrogate there raises no error.
        FUZZ_CHECK(result.ok() || !whole.result.ok());
        FUZZ_CHECK(whole.result.ok() || !result.ok() || !options.left);
        if (whole.result.ok()) {
            const int64_t kept = std::min<int64_t>(whole.tokens.size(), options.max_length - 2);
            const int64_t skipped = options.left ? whole.tokens.size() - kept : 0;
            FUZZ_CHECK(out.num_tokens == 9 * (kept + 2));
            for (const batch_chunk& chunk : out.chunks) {
                const int32_t* ids = out.workers[static_cast<size_t>(chunk.worker)]->out.ids.data();
                for (int64_t row = 0; row < chunk.num_rows; ++row) {
                    const int32_t* at = ids + chunk.first_token + row * (kept + 2) + 1;
                    FUZZ_CHECK(std::equal(at, at + kept, whole.tokens.ids.data() + skipped));
                }
            }
        }
        batch.recycle(out);
    }
}

// Checks an encoder against the expected tokens, on every width of a text and with a limit.
inline void check_encoder(const sequence_encoder& encoder, const fuzz_text& text, int64_t limit,
                          const encoded& whole, encoder_scratch& warm, bool with_cold) {
    const bool with_spans = whole.tokens.with_spans;
    // Empty caches. Not in every run, because they are large.
    if (with_cold) {
        const auto cold = encoder.make_scratch();
        check_same(encode(encoder, text.views().front(), kNoLimit, with_spans, *cold), whole);
        check_same(encode(encoder, text.views().front(), kNoLimit, with_spans, *cold), whole);
    }
    for (const text_view& view : text.views()) {
        check_same(encode(encoder, view, kNoLimit, with_spans, warm), whole);
        // With a limit, reading stops soon after it; the tokens up to the limit are the same.
        const encoded part = encode(encoder, view, limit, with_spans, warm);
        if (!whole.result.ok() || !part.result.ok()) continue;
        const int64_t kept = std::min<int64_t>(limit, whole.tokens.size());
        FUZZ_CHECK(same(part.tokens.ids, whole.tokens.ids, kept));
        if (!with_spans || kept == 0) continue;
        // An unknown token at the limit may span characters that were not read.
        FUZZ_CHECK(same(part.tokens.spans, whole.tokens.spans, 2 * kept - 1));
        if (kept < limit) FUZZ_CHECK(part.tokens.spans[2 * kept - 1] == whole.tokens.spans[2 * kept - 1]);
    }
}

// Checks a text's ids against those of the slow twin.
inline void check_ids(const std::vector<int32_t>& ids, const encoded& whole) {
    FUZZ_CHECK(static_cast<int64_t>(ids.size()) == whole.tokens.size());
    FUZZ_CHECK(std::equal(ids.begin(), ids.end(), whole.tokens.ids.data()));
}

// Checks a text's tokens against those of the slow twin.
inline void check_tokens(const std::vector<slow_token>& tokens, const encoded& whole) {
    FUZZ_CHECK(static_cast<int64_t>(tokens.size()) == whole.tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
        const auto place = static_cast<int64_t>(i);
        FUZZ_CHECK(tokens[i].id == whole.tokens.ids[place]);
        if (!whole.tokens.with_spans) continue;
        FUZZ_CHECK(tokens[i].start == whole.tokens.spans[2 * place]);
        FUZZ_CHECK(tokens[i].stop == whole.tokens.spans[2 * place + 1]);
        FUZZ_CHECK(tokens[i].word == whole.tokens.words[place]);
    }
}

// Checks that a text is refused for its first lone surrogate, and for no other reason.
inline void check_status(const status& result, const std::vector<uint32_t>& codes) {
    const auto found = std::find_if(codes.begin(), codes.end(), [](uint32_t code) {
        return code >= 0xD800 && code < 0xE000;
    });
    FUZZ_CHECK(result.ok() == (found == codes.end()));
    FUZZ_CHECK(result.ok() || result.position == found - codes.begin());
}

// Splits a text into short texts of one batch, and checks that each row equals its text's tokens.
inline void check_rows(const batch_encoder& batch, const std::vector<uint32_t>& codes, int64_t limit,
                       bool with_spans, encoder_scratch& scratch) {
    std::vector<std::unique_ptr<fuzz_text>> texts;
    std::vector<text_view> views;
    std::vector<encoded> expected;
    std::u32string part;
    for (size_t i = 0; i <= codes.size(); ++i) {
        const bool ends = i == codes.size() || codes[i] % 16 == 10;  // a line feed and others
        if (i < codes.size() && (codes[i] & ~0x7FFu) != 0xD800) part.push_back(codes[i]);
        if (!ends) continue;
        texts.push_back(std::make_unique<fuzz_text>(part));
        views.push_back(texts.back()->views().front());
        expected.push_back(encode(batch.encoder(), views.back(), kNoLimit, with_spans, scratch));
        part.clear();
    }
    encode_options options;
    options.with_spans = with_spans;
    options.num_threads = 1;
    if (limit % 4 != 0) options.strategy = truncation_strategy::longest_first;
    options.max_length = 2 + limit;
    batch_output out;
    const auto count = static_cast<int64_t>(views.size());
    FUZZ_CHECK(batch.encode({{views.data(), nullptr}, {}, count}, options, out).ok());
    size_t row = 0;
    for (const batch_chunk& chunk : out.chunks) {
        const batch_worker& worker = *out.workers[static_cast<size_t>(chunk.worker)];
        int64_t at = chunk.first_token;
        for (int64_t i = chunk.first_row; i < chunk.first_row + chunk.num_rows; ++i, ++row) {
            const token_buffer& whole = expected[row].tokens;
            const int64_t kept = worker.row_lengths[i] - 2;
            const bool cut = options.strategy != truncation_strategy::none && whole.size() > limit;
            FUZZ_CHECK(kept == (cut ? limit : whole.size()));
            FUZZ_CHECK((out.truncated[static_cast<int64_t>(row)] != 0) == cut);
            const auto as_expected = [&](const pod_vector<int32_t>& found,
                                         const pod_vector<int32_t>& wanted, int64_t each) {
                const int32_t* first = found.data() + each * (at + 1);
                return std::equal(first, first + each * kept, wanted.data());
            };
            FUZZ_CHECK(as_expected(worker.out.ids, whole.ids, 1));
            FUZZ_CHECK(!with_spans || as_expected(worker.out.spans, whole.spans, 2));
            FUZZ_CHECK(!with_spans || as_expected(worker.out.words, whole.words, 1));
            at += kept + 2;
        }
    }
    FUZZ_CHECK(row == views.size());
    batch.recycle(out);
}

// Makes a batch encoder with one special token before the text and one after it.
inline std::unique_ptr<batch_encoder> make_batch(std::unique_ptr<sequence_encoder> encoder) {
    row_template single;
    single.pieces = {{piece_kind::special, {1}}, {piece_kind::first, {}}, {piece_kind::special, {2}}};
    row_template pair = single;
    pair.pieces.push_back({piece_kind::second, {}});
    return std::make_unique<batch_encoder>(std::move(encoder), single, pair);
}

}  // namespace encoder_engine
