// A dense layer's weight laid out for every instruction set alike, whatever its elements.
#pragma once

#include <cstdint>

#include "cpu/element.h"

namespace encoder_engine {

// A weight [width, depth] lies in panels of kPanelWidth features out, within a panel by words of
// features in, so that it is [panels][words][kPanelWidth], zeros where there is no feature. A word
// holds as many neighbours as it has room for: one float32, two of bfloat16, four bytes.
constexpr int64_t kPanelWidth = 64;
constexpr int64_t kWordBytes = 4;
constexpr int64_t kDepthUnit = 64;  // bytes; a row is filled up to a multiple of it

inline int64_t num_panels(int64_t width) { return whole(width, kPanelWidth) / kPanelWidth; }
inline int64_t panel_bytes(int64_t row_bytes) { return kPanelWidth * whole(row_bytes, kDepthUnit); }

// What the panels take, and after them a word for each feature out that its sum begins with.
inline int64_t panels_bytes(int64_t width, int64_t row_bytes) {
    return num_panels(width) * (panel_bytes(row_bytes) + kPanelWidth * kWordBytes);
}

// Lays rows out, and sets the words that the sums begin with to 0; returns those.
void* lay_out_panels(const void* plain, int64_t width, int64_t row_bytes, void* packed);
void take_from_panels(const void* packed, int64_t width, int64_t row_bytes, void* plain);

}  // namespace encoder_engine
