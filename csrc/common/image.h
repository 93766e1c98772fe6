// Arrays serialised into one block of bytes, and read in place.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "common/flat_array.h"

namespace encoder_engine {

constexpr size_t kImageAlignment = 64;

// Each array is its number of values, then the values, both at a multiple of kImageAlignment.
class image_writer {
public:
    template <typename T>
    void add(const flat_array<T>& values) {
        const uint64_t count = values.size();
        append(&count, sizeof count);
        append(values.data(), values.size() * sizeof(T));
    }
    std::string take() { return std::move(bytes_); }

private:
    void append(const void* data, size_t size) {
        if (size > 0) bytes_.append(static_cast<const char*>(data), size);
        bytes_.append((kImageAlignment - bytes_.size() % kImageAlignment) % kImageAlignment, '\0');
    }
    std::string bytes_;
};

// Reads what an image_writer wrote, in the same order.
class image_reader {
public:
    image_reader(const void* data, size_t size)
        : at_(static_cast<const uint8_t*>(data)), left_(size),
          ok_(reinterpret_cast<uintptr_t>(data) % kImageAlignment == 0) {}

    template <typename T>
    flat_array<T> read() {
        uint64_t count = 0;
        if (const void* place = take(sizeof count)) std::memcpy(&count, place, sizeof count);
        ok_ = ok_ && count <= left_ / sizeof(T);
        const void* values = ok_ ? take(count * sizeof(T)) : nullptr;
        return flat_array<T>(static_cast<const T*>(values), ok_ ? count : 0);
    }
    // Whether the block held all arrays and nothing else.
    bool complete() const { return ok_ && left_ == 0; }

private:
    const void* take(size_t size) {
        const size_t whole = (size + kImageAlignment - 1) / kImageAlignment * kImageAlignment;
        ok_ = ok_ && whole <= left_;
        if (!ok_) return nullptr;
        const void* place = at_;
        at_ += whole;
        left_ -= whole;
        return place;
    }
    const uint8_t* at_;
    size_t left_;
    bool ok_;
};

}  // namespace encoder_engine
