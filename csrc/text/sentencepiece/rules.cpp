// Notes for each character what rules begin with it.
#include "text/sentencepiece/rules.h"

#include <algorithm>

#include "text/unicode/tables.h"

namespace encoder_engine {

sentencepiece_rules::sentencepiece_rules(const std::string& charsmap_bytes,
                                         std::vector<std::string> symbols)
    : rules_(charsmap_bytes), stage_(kUnicodeEnd >> 8, 0), entries_(256), forms_(1) {
    std::sort(symbols.begin(), symbols.end());
    std::vector<std::pair<std::string_view, int32_t>> keys;
    for (const std::string& symbol : symbols) keys.emplace_back(symbol, 0);
    symbols_.build(keys);
    std::vector<uint32_t> starts;
    rules_.for_each_next(nullptr, 0, [&](uint32_t code) { starts.push_back(code); });
    for (const uint32_t code : starts) {
        uint8_t bytes[4];
        const int size = write_utf8(code, bytes);
        const charsmap::rule rule = rules_.longest(bytes, size);
        if (rule.size == size) {
            writable(code) |= static_cast<uint32_t>(forms_.size());
            forms_.push_back(rule);
        }
        rules_.for_each_next(bytes, size, [&](uint32_t next) {
            writable(code) |= kContinues;
            writable(next) |= kFollows;
        });
    }
    mark_starts(symbols);
}

void sentencepiece_rules::mark_starts(const std::vector<std::string>& symbols) {
    for (const std::string& symbol : symbols) {
        const auto* at = reinterpret_cast<const uint8_t*>(symbol.data());
        const uint8_t* end = at + symbol.size();
        const uint32_t code = read_utf8(at);
        if (at < end) {
            writable(code) |= kContinues;
            writable(read_utf8(at)) |= kInSymbol;
        } else {
            writable(code) &= ~kIndex;  // no rule is tried on it
        }
    }
}

uint32_t& sentencepiece_rules::writable(uint32_t code) {
    uint16_t& block = stage_[code >> 8];
    if (block == 0) {
        block = static_cast<uint16_t>(entries_.size() / 256);
        entries_.resize(entries_.size() + 256);
    }
    return entries_[static_cast<size_t>(block) << 8 | (code & 0xFF)];
}

}  // namespace encoder_engine
