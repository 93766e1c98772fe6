// Moves a weight into panels and back, word by word.
#include "cpu/weight_panels.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "common/parallel.h"

namespace encoder_engine {
namespace {

// Bytes of a thread's share: waking a thread for fewer costs more than it saves.
constexpr int64_t kBytesPerThread = 1 << 18;

// Calls move(bytes of the plain weight, bytes of the packed one, how many) for every row's cache lines of
// a panel, one line of each row after the other.
template <typename Move>
void for_each_line(int64_t panel, int64_t width, int64_t row_bytes, const Move& move) {
    const int64_t first = panel * kPanelWidth, last = std::min(first + kPanelWidth, width);
    for (int64_t line = 0; line < row_bytes; line += kDepthUnit) {
        for (int64_t feature = first; feature < last; ++feature) {
            move(feature * row_bytes + line,
                 panel * panel_bytes(row_bytes) + line * kPanelWidth + (feature - first) * kWordBytes,
                 std::min(kDepthUnit, row_bytes - line));
        }
    }
}

// Copies bytes word by word; the last word may be incomplete.
void copy_words(const char* from, int64_t from_stride, char* to, int64_t to_stride, int64_t bytes) {
    for (; bytes >= kWordBytes; bytes -= kWordBytes, from += from_stride, to += to_stride) {
        std::memcpy(to, from, kWordBytes);
    }
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

constexpr int64_t kPackedStride = kPanelWidth * kWordBytes;

}  // namespace

void* lay_out_panels(const void* plain, int64_t width, int64_t row_bytes, void* packed, int num_threads) {
    const char* const from = static_cast<const char*>(plain);
    char* const to = static_cast<char*>(packed);
    const int64_t panels = num_panels(width), bytes = panel_bytes(row_bytes);
    std::atomic<int64_t> next{0};
    run_parallel(team_size(std::min(panels, panels * bytes / kBytesPerThread), num_threads), [&] {
        for (int64_t panel; (panel = next.fetch_add(1, std::memory_order_relaxed)) < panels;) {
            const bool is_full = (panel + 1) * kPanelWidth <= width && row_bytes % kDepthUnit == 0;
            if (!is_full) std::fill_n(to + panel * bytes, bytes, char{0});
            for_each_line(panel, width, row_bytes, [&](int64_t at, int64_t place, int64_t size) {
                // The rows of a panel are more streams than a processor foresees.
                __builtin_prefetch(from + at + kDepthUnit);
                copy_words(from + at, kWordBytes, to + place, kPackedStride, size);
            });
        }
    });
    char* const starts = to + panels * bytes;
    std::fill_n(starts, panels * kPanelWidth * kWordBytes, char{0});
    return starts;
}

void take_from_panels(const void* packed, int64_t width, int64_t row_bytes, void* plain) {
    const char* const from = static_cast<const char*>(packed);
    char* const to = static_cast<char*>(plain);
    for (int64_t panel = 0; panel < num_panels(width); ++panel) {
        for_each_line(panel, width, row_bytes, [&](int64_t at, int64_t place, int64_t size) {
            copy_words(from + place, kPackedStride, to + at, kWordBytes, size);
        });
    }
}

}  // namespace encoder_engine
