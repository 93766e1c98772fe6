// Lookups on the generated Unicode tables, by binary search.
#include <algorithm>
#include <iterator>

#include "text/unicode_tables.h"

namespace encoder_engine {
namespace {

uint32_t run_value(const uint32_t* runs, int count, uint32_t code) {
    const uint32_t* next = std::upper_bound(runs, runs + count, code << 8 | 0xFF);
    return *(next - 1) & 0xFF;
}

constexpr uint32_t kJamoL = 0x1100, kJamoV = 0x1161, kJamoT = 0x11A7;
constexpr uint32_t kJamoVCount = 21, kJamoTCount = 28;

int decompose_hangul(uint32_t code, uint32_t* out) {
    const uint32_t index = code - kHangulFirst;
    out[0] = kJamoL + index / (kJamoVCount * kJamoTCount);
    out[1] = kJamoV + index / kJamoTCount % kJamoVCount;
    if (index % kJamoTCount == 0) return 2;
    out[2] = kJamoT + index % kJamoTCount;
    return 3;
}

// Position of the entry of `code` in unicode_decompositions, or -1. Entries differ in length, so
// the search lands on any number and walks back to the entry's head (the only one above 2^24).
int find_decomposition(uint32_t code) {
    int low = 0, high = unicode_decompositions_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        while (unicode_decompositions[middle] < 1u << 24) --middle;
        const uint32_t head = unicode_decompositions[middle];
        const uint32_t found = head & 0xFFFFFF;
        if (found == code) return middle;
        if (found < code) {
            low = middle + 1 + static_cast<int>(head >> 24);
        } else {
            high = middle;
        }
    }
    return -1;
}

}  // namespace

uint32_t unicode_properties(uint32_t code) {
    return run_value(unicode_property_runs, unicode_property_runs_count, code);
}

uint32_t unicode_combining_class(uint32_t code) {
    return run_value(unicode_combining_runs, unicode_combining_runs_count, code);
}

int unicode_lowercase(uint32_t code, uint32_t out[2]) {
    out[0] = code;
    if (code == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    const lowercase_run* end = unicode_lowercase_runs + unicode_lowercase_runs_count;
    const lowercase_run* run = std::upper_bound(
        unicode_lowercase_runs, end, code,
        [](uint32_t value, const lowercase_run& item) { return value < item.first; });
    if (run == unicode_lowercase_runs) return 1;
    --run;
    if (code <= run->last && (code - run->first) % run->step == 0) {
        out[0] = static_cast<uint32_t>(static_cast<int32_t>(code) + run->distance);
    }
    return 1;
}

int unicode_decompose(uint32_t code, uint32_t out[kMaxDecomposition]) {
    if (code >= kHangulFirst && code < kHangulEnd) return decompose_hangul(code, out);
    out[0] = code;
    const uint64_t* end = unicode_singletons + unicode_singletons_count;
    const uint64_t* single =
        std::lower_bound(unicode_singletons, end, static_cast<uint64_t>(code) << 24);
    if (single != end && *single >> 24 == code) {
        out[0] = static_cast<uint32_t>(*single & 0xFFFFFF);
        return 1;
    }
    const int at = find_decomposition(code);
    if (at < 0) return 1;
    const int length = static_cast<int>(unicode_decompositions[at] >> 24);
    std::copy_n(unicode_decompositions + at + 1, length, out);
    return length;
}

bool unicode_is_cjk(uint32_t code) {
    return std::any_of(std::begin(kCjkRanges), std::end(kCjkRanges), [code](const code_range& r) {
        return code >= r.first && code <= r.last;
    });
}

}  // namespace encoder_engine
