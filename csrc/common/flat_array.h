// An array of plain values that owns its memory or refers to memory of another owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace encoder_engine {

template <typename T>
class flat_array {
    static_assert(std::is_trivially_copyable<T>::value, "plain values only");

public:
    flat_array() = default;
    explicit flat_array(std::vector<T> values)
        : own_(std::move(values)), data_(own_.data()), size_(own_.size()) {}
    // The memory must outlive the array.
    flat_array(const T* data, size_t size) : data_(data), size_(size) {}
    flat_array(const flat_array&) = delete;
    flat_array& operator=(const flat_array&) = delete;
    // Moving a vector leaves its values where they are.
    flat_array(flat_array&&) = default;
    flat_array& operator=(flat_array&&) = default;

    const T& operator[](size_t i) const { return data_[i]; }
    const T* data() const { return data_; }
    size_t size() const { return size_; }
    int64_t num_bytes() const { return static_cast<int64_t>(size_ * sizeof(T)); }

private:
    std::vector<T> own_;
    const T* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace encoder_engine
