// The packed layout of a dense layer's weight, one for all instruction sets and element types.
#pragma once

#include <cstdint>

#include "cpu/element.h"

namespace encoder_engine {

// A weight [width, depth] is stored as [panels][words][kPanelWidth]: panels of kPanelWidth output
// features, by words of input features, zeros where there is no feature. A word of 32 bits holds
// neighbouring input features: one float32, two of bfloat16, or four bytes.
constexpr int64_t kPanelWidth = 64;
constexpr int64_t kWordBytes = 4;
constexpr int64_t kDepthUnit = 64;  // bytes; a row is filled up to a multiple of it

inline int64_t num_panels(int64_t width) { return whole(width, kPanelWidth) / kPanelWidth; }
inline int64_t panel_bytes(int64_t row_bytes) { return kPanelWidth * whole(row_bytes, kDepthUnit); }

// The bytes of the panels, and of a word per output feature after them, with which its sum begins.
inline int64_t panels_bytes(int64_t width, int64_t row_bytes) {
    return num_panels(width) * (panel_bytes(row_bytes) + kPanelWidth * kWordBytes);
}

// Packs rows, and sets the words with which sums begin to 0; returns these words.
void* lay_out_panels(const void* plain, int64_t width, int64_t row_bytes, void* packed, int num_threads);
void take_from_panels(const void* packed, int64_t width, int64_t row_bytes, void* plain);

}  // namespace encoder_engine
