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

// Calls move(bytes of the plain weight, bytes of the packed one, how many) for every word of a panel,
// a cache line of each row at a time.
template <typename Move>
void for_each_word(int64_t panel, int64_t width, int64_t row_bytes, const Move& move) {
    const int64_t first = panel * kPanelWidth, last = std::min(first + kPanelWidth, width);
    for (int64_t line = 0; line < row_bytes; line += kDepthUnit) {
        const int64_t end = std::min(line + kDepthUnit, row_bytes);
        for (int64_t feature = first; feature < last; ++feature) {
            for (int64_t at = line; at < end; at += kWordBytes) {
                move(feature * row_bytes + at,
                     panel * panel_bytes(row_bytes) + at * kPanelWidth + (feature - first) * kWordBytes,
                     static_cast<size_t>(std::min(kWordBytes, end - at)));
            }
        }
    }
}

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
            for_each_word(panel, width, row_bytes, [&](int64_t at, int64_t place, size_t size) {
                if (size == kWordBytes) {
                    std::memcpy(to + place, from + at, kWordBytes);
                } else {
                    std::memcpy(to + place, from + at, size);
                }
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
        for_each_word(panel, width, row_bytes, [&](int64_t at, int64_t place, size_t size) {
            if (size == kWordBytes) {
                std::memcpy(to + at, from + place, kWordBytes);
            } else {
                std::memcpy(to + at, from + place, size);
            }
        });
    }
}

}  // namespace encoder_engine
