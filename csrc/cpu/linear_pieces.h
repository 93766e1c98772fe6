// Cuts a GEMM into pieces of rows by panels of the weight, which threads take from a shared counter.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "common/parallel.h"
#include "cpu/element.h"
#include "cpu/scratch.h"

namespace encoder_engine {

// A range of rows and of panels.
struct linear_piece {
    int64_t first_row, last_row;
    int64_t first_panel, last_panel;
};

struct linear_cut {
    int64_t num_rows, num_panels;
    int64_t most_rows;  // of a piece, in whole units
    int64_t row_unit;   // a piece ends at a multiple of this number of rows
    bool whole_rows;    // a piece takes all panels
    int num_threads;
};

// The least rows of a piece: for fewer, waking a thread costs more than it saves.
constexpr int64_t kLeastRows = 16;

// With few rows, reading the weight dominates: this many bytes take longer than waking a thread.
constexpr int64_t kWeightPerThread = 1 << 16;

// The rows of a piece, which share one read of the weight: as many as fit 1 MiB of cache, 32 to 256.
inline int64_t rows_of_piece(int64_t row_bytes) {
    constexpr int64_t kMostRows = 256, kMostBytes = 1 << 20;
    return std::clamp<int64_t>(kMostBytes / std::max<int64_t>(row_bytes, 1) / kLeastRows * kLeastRows,
                               2 * kLeastRows, kMostRows);
}

// Calls run(piece, scratch) for all pieces; scratch_bytes(rows): the scratch memory of a piece.
template <typename ScratchBytes, typename Run>
void run_pieces(const linear_cut& cut, const ScratchBytes& scratch_bytes, const Run& run) {
    const auto parts_of = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
    const int64_t units = parts_of(cut.num_rows, cut.row_unit);
    int64_t row_parts = parts_of(units, std::max<int64_t>(1, cut.most_rows / cut.row_unit));
    int64_t panel_parts = 1;
    if (cut.whole_rows || row_parts >= 2 * cut.num_threads) {
        row_parts = whole(row_parts, cut.num_threads);
    } else {
        panel_parts = std::clamp<int64_t>(cut.num_panels, 1, cut.num_threads);
    }
    row_parts = std::min(row_parts, units);
    const auto first_row = [&](int64_t part) {
        return std::min(part * units / row_parts * cut.row_unit, cut.num_rows);
    };
    const int64_t panels = parts_of(cut.num_panels, panel_parts);

    std::atomic<int64_t> next{0};
    std::atomic<bool> out_of_memory{false};
    run_parallel(cut.num_threads, [&] {
        void* scratch = thread_scratch(scratch_bytes(parts_of(units, row_parts) * cut.row_unit));
        if (scratch == nullptr) {
            out_of_memory = true;
            return;
        }
        const int64_t num_pieces = row_parts * panel_parts;
        for (int64_t piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < num_pieces;) {
            const int64_t part = piece / panel_parts, panel = piece % panel_parts * panels;
            run({first_row(part), first_row(part + 1), panel, std::min(panel + panels, cut.num_panels)},
                scratch);
        }
    });
    if (out_of_memory) throw std::bad_alloc();
}

}  // namespace encoder_engine
