// Eight lanes of multiply and shift hide the multiplier's latency: faster than memory is read.
#include "common/memory_hash.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "common/parallel.h"

namespace encoder_engine {
namespace {

constexpr uint64_t kPrime = 0x9E3779B97F4A7C15ull;
constexpr int kLanes = 8;
constexpr size_t kBlock = kLanes * sizeof(uint64_t);
// Bytes of a thread's chunk.
constexpr size_t kChunk = size_t{1} << 18;

// One to one for a given word, and for a given lane.
inline uint64_t mix(uint64_t lane, uint64_t word) {
    const uint64_t mixed = (lane ^ word) * kPrime;
    return mixed ^ mixed >> 29;
}

uint64_t hash_chunk(const uint8_t* bytes, size_t size) {
    uint64_t lanes[kLanes];
    for (int i = 0; i < kLanes; ++i) lanes[i] = mix(kPrime + static_cast<uint64_t>(i), size);
    const auto take = [&lanes](const uint8_t* from, size_t count) {
        uint64_t words[kLanes] = {};
        std::memcpy(words, from, count);
        for (int i = 0; i < kLanes; ++i) lanes[i] = mix(lanes[i], words[i]);
    };
    size_t at = 0;
    for (; size - at >= kBlock; at += kBlock) take(bytes + at, kBlock);
    if (at < size) take(bytes + at, size - at);
    uint64_t out = 0;
    for (const uint64_t lane : lanes) out = mix(out, lane);
    return out;
}

}  // namespace

uint64_t hash_memory(const std::vector<memory_piece>& pieces, int num_threads) {
    std::vector<memory_piece> chunks;
    for (const memory_piece& piece : pieces) {
        for (size_t at = 0; at < piece.size; at += kChunk) {
            chunks.push_back({piece.bytes + at, std::min(kChunk, piece.size - at)});
        }
    }
    std::vector<uint64_t> hashes(chunks.size());
    std::atomic<size_t> next{0};
    const int team = team_size(static_cast<int64_t>(chunks.size() / 2), num_threads);
    run_parallel(team, [&] {
        for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < chunks.size();) {
            hashes[i] = hash_chunk(chunks[i].bytes, chunks[i].size);
        }
    });
    uint64_t out = pieces.size();
    for (const uint64_t hash : hashes) out = mix(out, hash);
    return out;
}

}  // namespace encoder_engine
