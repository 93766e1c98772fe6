// Encodes a batch of texts or pairs into packed rows: template, truncation, overflow, threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "common/thread_pool.h"
#include "text/unigram/paths/path_sampling.h"
#include "text/sequence_encoder.h"
#include "text/truncation.h"

namespace encoder_engine {

enum class piece_kind : uint8_t { special, first, second };

// One element of a row: fixed ids, or a text's tokens.
struct template_piece {
    piece_kind kind;
    std::vector<int32_t> ids;  // of a special piece
};

// The order of a row's elements; a text appears once.
struct row_template {
    std::vector<template_piece> pieces;
    int64_t num_special() const;
    // The fixed ids ahead of the only text of a row and behind it; set by frame().
    std::vector<int32_t> before, after;
    void frame();
};

struct encode_options {
    bool add_special_tokens = true;
    truncation_strategy strategy = truncation_strategy::none;
    int64_t max_length = 0;  // with a strategy: tokens of a row, specials included
    int64_t stride = 0;
    bool overflow = false;   // tokens that do not fit make further rows
    bool left = false;       // cut from the left
    bool with_spans = false;
    int num_threads = 0;     // 0: as many as the batch is worth
    const sampling_options* sampling = nullptr;  // of segmentations; none: the best ones
};

// Texts, each in one piece or as a list of words.
struct text_batch {
    const text_view* views = nullptr;
    const int64_t* starts = nullptr;  // of words: text i is views [starts[i], starts[i + 1])

    const text_view* begin(int64_t i) const { return views + (starts != nullptr ? starts[i] : i); }
    int64_t count(int64_t i) const { return starts != nullptr ? starts[i + 1] - starts[i] : 1; }
};

struct batch_input {
    text_batch first;
    text_batch second;  // no views without pairs
    int64_t size = 0;
    bool paired() const { return second.views != nullptr; }
};

// One thread's buffers, kept between batches.
struct batch_worker {
    std::unique_ptr<encoder_scratch> scratch;
    token_buffer out, first, second;
    pod_vector<int32_t> row_lengths;
    pod_vector<int32_t> first_lengths;  // per row: tokens of the first text
    pod_vector<int32_t> samples;        // per row: index of its text in the batch
    std::vector<token_range> first_ranges, second_ranges;
    void clear();
    int64_t num_bytes() const;
};

// Consecutive texts that one worker encoded, and where their rows lie in its buffers.
struct batch_chunk {
    int64_t begin = 0, end = 0;  // texts
    int worker = 0;
    int64_t first_row = 0, num_rows = 0;
    int64_t first_token = 0, num_tokens = 0;
};

struct batch_output {
    std::vector<std::unique_ptr<batch_worker>> workers;
    std::vector<batch_chunk> chunks;  // in the order of the batch
    pod_vector<uint8_t> truncated;    // per text: tokens were cut off and appear in no row
    int64_t num_rows = 0, num_tokens = 0;
};

// Whether spans leave out white space at the ends of tokens. `prefixed`: the token that begins a
// row or a text keeps one space, which the library takes for an added prefix.
enum class span_trim : uint8_t { none, all, prefixed };

class batch_encoder {
public:
    batch_encoder(std::unique_ptr<sequence_encoder> encoder, row_template single, row_template pair,
                  span_trim trim = span_trim::none)
        : encoder_(std::move(encoder)), single_(std::move(single)), pair_(std::move(pair)),
          trim_(trim) {
        single_.frame();
    }

    ~batch_encoder() { delete spare_.load(); }

    // Fills `out`. After an error, the content of `out` is undefined. recycle() takes `out` back.
    status encode(const batch_input& input, const encode_options& options, batch_output& out) const;
    void recycle(batch_output& out) const;
    // Copies the ids of all rows, in order, to num_tokens places.
    void copy_ids(const batch_output& out, int32_t* to) const;

    // Encodes one text without truncation, ids in `worker.out`: the path with the least overhead.
    status encode_one(const text_view& text, bool add_special_tokens, batch_worker& worker) const;
    // Encodes one text along each of its best paths, as rows in `worker.out` that end at `ends`.
    status encode_nbest(const text_view& text, int64_t count, bool add_special_tokens,
                        batch_worker& worker, std::vector<int64_t>& ends,
                        std::vector<double>& scores) const;
    std::unique_ptr<batch_worker> take_worker() const;
    void recycle(std::unique_ptr<batch_worker> worker) const;

    const sequence_encoder& encoder() const { return *encoder_; }
    const row_template& single() const { return single_; }
    const row_template& pair() const { return pair_; }
    span_trim trim() const { return trim_; }

private:
    std::unique_ptr<sequence_encoder> encoder_;
    row_template single_, pair_;
    span_trim trim_;
    mutable thread_pool pool_;
    // The worker that was last recycled, taken without a lock; the others are in idle_.
    mutable std::atomic<batch_worker*> spare_{nullptr};
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<batch_worker>> idle_;  // guarded by mutex_
};

}  // namespace encoder_engine
