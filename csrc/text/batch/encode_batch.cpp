// Splits a batch into chunks of texts and lets threads take them in turn.
#include "text/batch/encode_batch.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "common/cpu_count.h"
#include "text/batch/row_encoder.h"

namespace encoder_engine {
namespace {

// Below this many characters a thread costs more than it saves.
constexpr int64_t kCharactersPerThread = 1 << 15;
constexpr int64_t kMinChunkCharacters = 1 << 12;
constexpr int kChunksPerThread = 8;
constexpr int64_t kTokensPerCopier = 1 << 16;
// A worker that grew beyond this is freed rather than kept.
constexpr int64_t kKeptBytes = 8 << 20;
constexpr size_t kKeptWorkers = 64;
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

int64_t count_characters(const text_batch& texts, int64_t i) {
    int64_t count = 0;
    for (int64_t word = 0; word < texts.count(i); ++word) count += texts.begin(i)[word].length;
    return count;
}

int64_t count_characters(const batch_input& input, int64_t i) {
    return count_characters(input.first, i) +
           (input.paired() ? count_characters(input.second, i) : 0);
}

int choose_threads(int requested, int64_t characters) {
    if (requested > 0) return requested;
    const int64_t worth = 1 + characters / kCharactersPerThread;
    return worth == 1 ? 1 : static_cast<int>(std::min<int64_t>(worth, num_usable_cpus()));
}

// Cuts the batch into runs of texts of about equal size.
void cut_chunks(const batch_input& input, int64_t characters, int num_threads,
                std::vector<batch_chunk>& chunks) {
    const int64_t aim = num_threads == 1
                            ? std::numeric_limits<int64_t>::max()
                            : std::max(kMinChunkCharacters,
                                       characters / (num_threads * kChunksPerThread));
    int64_t begin = 0, gathered = 0;
    for (int64_t i = 0; i < input.size; ++i) {
        gathered += count_characters(input, i);
        if (gathered < aim && i + 1 < input.size) continue;
        batch_chunk chunk;
        chunk.begin = begin;
        chunk.end = i + 1;
        chunks.push_back(chunk);
        begin = i + 1;
        gathered = 0;
    }
}

status encode_chunk(const batch_encoder& batch, const batch_input& input,
                    const encode_options& options, batch_worker& worker, batch_chunk& chunk,
                    uint8_t* truncated) {
    row_encoder rows(batch, options, worker, input.paired());
    chunk.first_row = worker.row_lengths.size();
    chunk.first_token = worker.out.size();
    std::fill(truncated + chunk.begin, truncated + chunk.end, 0);
    for (int64_t i = chunk.begin; i < chunk.end; ++i) {
        i += rows.encode_together(input, i, chunk.end, truncated);
        if (i == chunk.end) break;
        const status result = rows.encode(input, i, truncated[i]);
        if (!result.ok()) return result;
    }
    chunk.num_rows = worker.row_lengths.size() - chunk.first_row;
    chunk.num_tokens = worker.out.size() - chunk.first_token;
    return {};
}

}  // namespace

int64_t row_template::num_special() const {
    int64_t count = 0;
    for (const template_piece& piece : pieces) count += static_cast<int64_t>(piece.ids.size());
    return count;
}

void row_template::frame() {
    bool text_seen = false;
    for (const template_piece& piece : pieces) {
        text_seen = text_seen || piece.kind != piece_kind::special;
        std::vector<int32_t>& ids = text_seen ? after : before;
        ids.insert(ids.end(), piece.ids.begin(), piece.ids.end());
    }
}

void batch_worker::clear() {
    out.clear();
    first.clear();
    second.clear();
    row_lengths.clear();
    first_lengths.clear();
    samples.clear();
}

int64_t batch_worker::num_bytes() const {
    return scratch->num_bytes() + out.num_bytes() + first.num_bytes() + second.num_bytes() +
           12 * samples.capacity();
}

status batch_encoder::encode(const batch_input& input, const encode_options& options,
                             batch_output& out) const {
    int64_t characters = 0;
    for (int64_t i = 0; i < input.size; ++i) characters += count_characters(input, i);
    int num_threads = choose_threads(options.num_threads, characters);
    cut_chunks(input, characters, num_threads, out.chunks);
    num_threads = std::min(num_threads, std::max(1, static_cast<int>(out.chunks.size())));
    for (int i = 0; i < num_threads; ++i) {
        out.workers.push_back(take_worker());
        batch_worker& worker = *out.workers.back();
        worker.out.with_spans = worker.first.with_spans = worker.second.with_spans =
            options.with_spans;
        worker.out.with_blanks = worker.first.with_blanks = worker.second.with_blanks =
            options.with_spans && trim_ != span_trim::none;
    }
    out.truncated.reserve_more(input.size);
    out.truncated.extend(input.size);

    std::atomic<size_t> next{0};
    // The first text in error, by its place in the batch, whatever the threads did.
    std::vector<status> results(out.chunks.size());
    std::atomic<size_t> failed{out.chunks.size()};
    pool_.run(num_threads, [&](int thread) {
        for (size_t i = next++; i < out.chunks.size() && i < failed; i = next++) {
            out.chunks[i].worker = thread;
            try {
                results[i] = encode_chunk(*this, input, options, *out.workers[thread],
                                          out.chunks[i], out.truncated.data());
            } catch (const std::bad_alloc&) {
                results[i].code = error_code::out_of_memory;
            }
            if (results[i].ok()) continue;
            size_t known = failed;
            while (i < known && !failed.compare_exchange_weak(known, i)) {
            }
        }
    });
    for (const status& result : results) {
        if (!result.ok()) return result;
    }
    for (const batch_chunk& chunk : out.chunks) {
        out.num_rows += chunk.num_rows;
        out.num_tokens += chunk.num_tokens;
    }
    if (out.num_tokens > kMaxTokens) return {error_code::too_many_tokens, -1, out.num_tokens, false};
    return {};
}

void batch_encoder::copy_ids(const batch_output& out, int32_t* to) const {
    std::vector<int64_t> starts;
    int64_t start = 0;
    for (const batch_chunk& chunk : out.chunks) {
        starts.push_back(start);
        start += chunk.num_tokens;
    }
    // Each thread what one worker wrote: with luck it is the same, and still has it in its cache.
    const auto num_workers = static_cast<int>(out.workers.size());
    std::atomic<int> next{0};
    pool_.run(start < kTokensPerCopier ? 1 : num_workers, [&](int) {
        for (int worker = next++; worker < num_workers; worker = next++) {
            const int32_t* ids = out.workers[static_cast<size_t>(worker)]->out.ids.data();
            for (size_t i = 0; i < out.chunks.size(); ++i) {
                const batch_chunk& chunk = out.chunks[i];
                if (chunk.worker != worker) continue;
                std::copy_n(ids + chunk.first_token, chunk.num_tokens, to + starts[i]);
            }
        }
    });
}

std::unique_ptr<batch_worker> batch_encoder::take_worker() const {
    if (batch_worker* spare = spare_.exchange(nullptr, std::memory_order_acquire)) {
        return std::unique_ptr<batch_worker>(spare);
    }
    {
        // After a fork the lock may never be free again: make do without.
        const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
        if (lock.owns_lock() && !idle_.empty()) {
            std::unique_ptr<batch_worker> worker = std::move(idle_.back());
            idle_.pop_back();
            return worker;
        }
    }
    auto worker = std::make_unique<batch_worker>();
    worker->scratch = encoder_->make_scratch();
    return worker;
}

status batch_encoder::encode_one(const text_view& text, bool add_special_tokens,
                                 batch_worker& worker) const {
    encode_options options;
    options.add_special_tokens = add_special_tokens;
    worker.out.with_spans = worker.out.with_blanks = false;
    uint8_t truncated = 0;
    try {
        const batch_input input{{&text, nullptr}, {}, 1};
        return row_encoder(*this, options, worker, false).encode(input, 0, truncated);
    } catch (const std::bad_alloc&) {
        return {error_code::out_of_memory, -1, -1, false};
    }
}

status batch_encoder::encode_nbest(const text_view& text, int64_t count, bool add_special_tokens,
                                   batch_worker& worker, std::vector<int64_t>& ends,
                                   std::vector<double>& scores) const {
    constexpr int64_t kMaxCharacters = std::numeric_limits<int32_t>::max();
    if (text.length > kMaxCharacters) return {error_code::text_too_long, -1, text.length, false};
    try {
        std::vector<int64_t> stops;
        worker.first.with_spans = worker.out.with_spans = false;
        worker.first.with_blanks = worker.out.with_blanks = false;
        const status result = encoder_engine::encode_nbest(*encoder_, text, count, *worker.scratch,
                                                           worker.first, stops, scores);
        if (!result.ok()) return result;
        int64_t start = 0;
        for (const int64_t stop : stops) {
            for (const template_piece& piece : single_.pieces) {
                if (piece.kind == piece_kind::first) {
                    worker.out.append(worker.first, start, stop);
                } else if (piece.kind == piece_kind::special && add_special_tokens) {
                    worker.out.append_special(piece.ids.data(),
                                              static_cast<int64_t>(piece.ids.size()));
                }
            }
            ends.push_back(worker.out.size());
            start = stop;
        }
        return {};
    } catch (const std::bad_alloc&) {
        return {error_code::out_of_memory, -1, -1, false};
    }
}

void batch_encoder::recycle(batch_output& out) const {
    for (auto& worker : out.workers) recycle(std::move(worker));
    out.workers.clear();
}

void batch_encoder::recycle(std::unique_ptr<batch_worker> worker) const {
    if (worker == nullptr || worker->num_bytes() > kKeptBytes) return;
    worker->clear();
    batch_worker* none = nullptr;
    if (spare_.compare_exchange_strong(none, worker.get(), std::memory_order_release)) {
        worker.release();
        return;
    }
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || idle_.size() >= kKeptWorkers) return;
    idle_.push_back(std::move(worker));
}

}  // namespace encoder_engine
