// Builds and searches the hash table.
#include "text/vocabulary.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "text/sorted_texts.h"

namespace encoder_engine {
namespace {

constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;

bool is_line(std::string_view text) {
    return text.find('\n') == std::string_view::npos && (text.empty() || text.back() != '\r');
}

}  // namespace

uint64_t vocabulary::hash(std::string_view text) {
    const size_t size = text.size();
    uint64_t hash = size * kMultiplier, part = 0;
    for (size_t at = 0; at + 8 < size; at += 8) {
        std::memcpy(&part, text.data() + at, 8);
        hash = (hash ^ part) * kMultiplier;
        hash ^= hash >> 29;
    }
    // The last eight bytes, some of them again: a copy of any number of bytes is a call.
    if (size >= 8) {
        std::memcpy(&part, text.data() + size - 8, 8);
    } else if (size >= 4) {
        uint32_t first = 0, last = 0;
        std::memcpy(&first, text.data(), 4);
        std::memcpy(&last, text.data() + size - 4, 4);
        part = static_cast<uint64_t>(last) << 32 | first;
    } else {
        for (size_t at = 0; at < size; ++at) part = part << 8 | static_cast<uint8_t>(text[at]);
    }
    hash = (hash ^ part) * kMultiplier;
    hash = (hash ^ hash >> 32) * kMultiplier;
    return hash ^ hash >> 29;
}

vocabulary::vocabulary(token_list tokens)
    : tokens_(std::move(tokens)), tags_(tokens_.size() * 3 / 2 + 1), places_(tags_.size()) {
    constexpr size_t kAhead = 16;
    uint64_t hashes[kAhead] = {};
    for (size_t i = 0; i < tokens_.size() + kAhead; ++i) {
        const uint64_t hash = std::exchange(hashes[i % kAhead], i < tokens_.size() ? vocabulary::hash(tokens_.text(i)) : 0);
        if (i < tokens_.size()) prefetch(hashes[i % kAhead]);
        if (i < kAhead) continue;
        const size_t place = i - kAhead, slot = search(tokens_.text(place), hash);
        num_distinct_ += tags_[slot] == kFree;
        tags_[slot] = tag_of(hash);
        places_[slot] = static_cast<uint32_t>(place);
    }
}

size_t vocabulary::search(std::string_view text, uint64_t hash) const {
    const uint8_t tag = tag_of(hash);
    size_t slot = slot_of(hash);
    while (tags_[slot] != kFree && (tags_[slot] != tag || tokens_.text(places_[slot]) != text)) slot = next(slot);
    return slot;
}

int64_t vocabulary::find(std::string_view text, uint64_t hash) const {
    const size_t slot = search(text, hash);
    return tags_[slot] == kFree ? -1 : int64_t{places_[slot]};
}

std::vector<uint32_t> vocabulary::sorted() const {
    std::vector<uint32_t> places;
    places.reserve(num_distinct_);
    const std::vector<sorted_text> texts = sort_texts(tokens_);
    for (size_t i = 0; i < texts.size(); ++i) {
        const bool last = i + 1 == texts.size() || texts[i + 1].head != texts[i].head ||
                          tokens_.text(texts[i + 1].place) != tokens_.text(texts[i].place);
        if (last) places.push_back(texts[i].place);
    }
    return places;
}

int64_t vocabulary::find_id(int64_t id) const {
    int64_t low = 0, high = static_cast<int64_t>(tokens_.size());
    if (tokens_.counts()) return id >= 0 && id < high ? id : -1;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (tokens_.id(static_cast<size_t>(middle)) < id) low = middle + 1; else high = middle;
    }
    const bool found = low < static_cast<int64_t>(tokens_.size()) && tokens_.id(static_cast<size_t>(low)) == id;
    return found ? low : -1;
}

bool vocabulary::ids_ascend() const {
    for (size_t i = 1; i < tokens_.size(); ++i) {
        if (tokens_.id(i - 1) >= tokens_.id(i)) return false;
    }
    return true;
}

bool vocabulary::has_lines(std::string_view file) const {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (file.substr(0, kByteOrderMark.size()) == kByteOrderMark) return false;
    size_t at = 0;
    for (size_t i = 0; i < tokens_.size(); ++i) {
        const std::string_view text = tokens_.text(i);
        if (tokens_.id(i) != static_cast<int32_t>(i) || !is_line(text) || at > file.size() ||
            file.substr(at, text.size()) != text) {
            return false;
        }
        at += text.size();
        // An empty last line is one only where a line end follows it.
        if (at < file.size() ? file[at] != '\n' : text.empty()) return false;
        ++at;
    }
    // The last line may end with the file.
    return !tokens_.empty() && at >= file.size() && num_distinct_ == tokens_.size();
}

}  // namespace encoder_engine
