// The generated Unicode tables, and lookups on them by binary search.
#include <algorithm>
#include <iterator>

#include "text/unicode/tables.h"

namespace encoder_engine {

#include "text/unicode/categories.inc"
#include "text/unicode/decompositions.inc"
#include "text/unicode/forms.inc"
#include "text/unicode/graphemes.inc"
#include "text/unicode/properties.inc"

namespace {

uint32_t run_value(const uint32_t* runs, int count, uint32_t code) {
    const uint32_t* next = std::upper_bound(runs, runs + count, code << 8 | 0xFF);
    return *(next - 1) & 0xFF;
}

constexpr uint32_t kJamoL = 0x1100, kJamoV = 0x1161, kJamoT = 0x11A7;
constexpr uint32_t kJamoLCount = 19, kJamoVCount = 21, kJamoTCount = 28;

int decompose_hangul(uint32_t code, uint32_t* out) {
    const uint32_t index = code - kHangulFirst;
    out[0] = kJamoL + index / (kJamoVCount * kJamoTCount);
    out[1] = kJamoV + index / kJamoTCount % kJamoVCount;
    if (index % kJamoTCount == 0) return 2;
    out[2] = kJamoT + index % kJamoTCount;
    return 3;
}

// Position of the entry of `code` in a table of decompositions, or -1. Entries differ in length, so
// the search lands on any number and walks back to the entry's head (the only one above 2^24).
int find_decomposition(const uint32_t* table, int count, uint32_t code) {
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        while (table[middle] < 1u << 24) --middle;
        const uint32_t head = table[middle];
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

uint32_t unicode_category(uint32_t code) {
    return run_value(unicode_category_runs, unicode_category_runs_count, code);
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
    const int at = find_decomposition(unicode_decompositions, unicode_decompositions_count, code);
    if (at < 0) return 1;
    const int length = static_cast<int>(unicode_decompositions[at] >> 24);
    std::copy_n(unicode_decompositions + at + 1, length, out);
    return length;
}

int unicode_decompose_compatibility(uint32_t code, uint32_t out[kMaxCompatibility]) {
    const int at = find_decomposition(unicode_compatibility, unicode_compatibility_count, code);
    if (at < 0) return unicode_decompose(code, out);
    const int length = static_cast<int>(unicode_compatibility[at] >> 24);
    std::copy_n(unicode_compatibility + at + 1, length, out);
    return length;
}

uint32_t unicode_compose(uint32_t first, uint32_t second) {
    if (first - kJamoL < kJamoLCount && second - kJamoV < kJamoVCount) {
        return kHangulFirst + ((first - kJamoL) * kJamoVCount + second - kJamoV) * kJamoTCount;
    }
    if (first >= kHangulFirst && first < kHangulEnd && (first - kHangulFirst) % kJamoTCount == 0 &&
        second > kJamoT && second < kJamoT + kJamoTCount) {
        return first + second - kJamoT;
    }
    const composition* end = unicode_compositions + unicode_compositions_count;
    const composition* found = std::lower_bound(
        unicode_compositions, end, composition{first, second, 0},
        [](const composition& a, const composition& b) {
            return a.first != b.first ? a.first < b.first : a.second < b.second;
        });
    return found != end && found->first == first && found->second == second ? found->composed : 0;
}

uint32_t unicode_grapheme_run(uint32_t code) {
    return run_value(unicode_grapheme_runs, unicode_grapheme_runs_count, code);
}

bool unicode_is_cjk(uint32_t code) {
    return std::any_of(std::begin(kCjkRanges), std::end(kCjkRanges), [code](const code_range& r) {
        return code >= r.first && code <= r.last;
    });
}

}  // namespace encoder_engine
