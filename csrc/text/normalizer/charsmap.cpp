// Walks the compiled rules.
#include "text/normalizer/charsmap.h"

#include <cstring>

#include "text/text_view.h"

namespace encoder_engine {
namespace {

constexpr uint32_t kIsValue = 1u << 31;
constexpr uint32_t kHasValue = 1u << 8;
constexpr uint32_t kFarOffset = 1u << 9;

uint32_t read_le32(const char* bytes) {
    uint32_t value = 0;
    for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
}

}  // namespace

charsmap::charsmap(const std::string& bytes) {
    if (bytes.size() < 4) return;
    const size_t size = read_le32(bytes.data());
    if (size > bytes.size() - 4) return;
    units_.resize(size / 4);
    for (size_t i = 0; i < units_.size(); ++i) units_[i] = read_le32(bytes.data() + 4 + 4 * i);
    replacements_ = bytes.substr(4 + size);
}

int64_t charsmap::base_of(int64_t place) const {
    const uint32_t unit = units_[static_cast<size_t>(place)];
    return place ^ static_cast<int64_t>(unit >> 10) << ((unit & kFarOffset) >> 6);
}

int64_t charsmap::follow(int64_t base, uint8_t byte, bool& has_value) const {
    const int64_t place = base ^ byte;
    if (byte == 0 || place >= static_cast<int64_t>(units_.size())) return -1;
    const uint32_t unit = units_[static_cast<size_t>(place)];
    if ((unit & (kIsValue | 0xFF)) != byte) return -1;
    has_value = (unit & kHasValue) != 0;
    return base_of(place);
}

bool charsmap::replacement(int64_t base, rule& out) const {
    if (base >= static_cast<int64_t>(units_.size())) return false;
    const size_t start = units_[static_cast<size_t>(base)] & ~kIsValue;
    if (start >= replacements_.size()) return false;
    out.text = reinterpret_cast<const uint8_t*>(replacements_.data()) + start;
    out.text_size = static_cast<int64_t>(std::strlen(replacements_.c_str() + start));
    return true;
}

charsmap::rule charsmap::find(const uint8_t* text, int64_t size, bool first) const {
    rule found;
    if (units_.empty()) return found;
    int64_t base = base_of(0);
    for (int64_t i = 0; i < size; ++i) {
        bool has_value = false;
        base = follow(base, text[i], has_value);
        if (base < 0) break;
        if (has_value && replacement(base, found)) found.size = i + 1;
        if (first && found.size > 0) break;
    }
    return found;
}

bool charsmap::continues(const uint8_t* text, int64_t size) const {
    if (units_.empty()) return false;
    int64_t base = base_of(0);
    bool has_value = false;
    for (int64_t i = 0; i < size && base >= 0; ++i) base = follow(base, text[i], has_value);
    if (base < 0) return false;
    for (int byte = 1; byte < 256; ++byte) {
        if (follow(base, static_cast<uint8_t>(byte), has_value) >= 0) return true;
    }
    return false;
}

bool charsmap::vanishes_behind(const uint8_t* text, int64_t size) const {
    int64_t base = root();
    bool has_value = false;
    for (int64_t i = 0; i < size && base >= 0; ++i) base = follow(base, text[i], has_value);
    // Clusters of six bytes and more are no keys.
    return base >= 0 && any_vanishes(base, static_cast<int>(5 - size));
}

bool charsmap::any_vanishes(int64_t base, int depth) const {
    for (int byte = 1; byte < 256 && depth > 0; ++byte) {
        bool has_value = false;
        rule found;
        const int64_t next = follow(base, static_cast<uint8_t>(byte), has_value);
        if (next < 0) continue;
        if (has_value && replacement(next, found) && found.text_size == 0) return true;
        if (any_vanishes(next, depth - 1)) return true;
    }
    return false;
}

void charsmap::for_each_next(const uint8_t* text, int64_t size,
                             const std::function<void(uint32_t code)>& callback) const {
    int64_t start = root();
    bool ends = false;
    for (int64_t i = 0; i < size && start >= 0; ++i) start = follow(start, text[i], ends);
    if (start < 0) return;
    // The bytes of one character, or of what a damaged trie has in its place.
    const std::function<void(int64_t, uint8_t*, int)> visit = [&](int64_t base, uint8_t* bytes,
                                                                 int size) {
        for (int byte = 1; byte < 256; ++byte) {
            bool has_value = false;
            const int64_t next = follow(base, static_cast<uint8_t>(byte), has_value);
            if (next < 0) continue;
            bytes[size] = static_cast<uint8_t>(byte);
            const int length = bytes[0] < 0x80 ? 1 : bytes[0] < 0xE0 ? 2 : bytes[0] < 0xF0 ? 3 : 4;
            if (size + 1 < length) {
                visit(next, bytes, size + 1);
                continue;
            }
            const uint8_t* at = bytes;
            const uint32_t code = read_utf8(at);
            if (code < 0x110000) callback(code);
        }
    };
    uint8_t bytes[4];
    visit(start, bytes, 0);
}

}  // namespace encoder_engine
