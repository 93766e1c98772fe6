// A growable array of plain values that leaves new memory uninitialised.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

namespace encoder_engine {

// std::vector writes zeros on resize and checks capacity on every push; token output does neither:
// reserve_more(n) once per word, then push() up to n times.
template <typename T>
class pod_vector {
    static_assert(std::is_trivially_copyable<T>::value, "plain values only");

public:
    pod_vector() = default;
    pod_vector(const pod_vector&) = delete;
    pod_vector& operator=(const pod_vector&) = delete;
    pod_vector(pod_vector&& other) noexcept { swap(other); }
    pod_vector& operator=(pod_vector&& other) noexcept {
        swap(other);
        return *this;
    }
    ~pod_vector() { std::free(data_); }

    // Makes room for `count` more values.
    void reserve_more(int64_t count) {
        if (size_ + count > capacity_) grow(size_ + count);
    }
    // Appends; room must have been reserved.
    void push(T value) { data_[size_++] = value; }
    // Appends, making room.
    void append(T value) {
        reserve_more(1);
        push(value);
    }
    void append(const T* values, int64_t count) {
        if (count == 0) return;
        reserve_more(count);
        std::memcpy(data_ + size_, values, static_cast<size_t>(count) * sizeof(T));
        size_ += count;
    }
    // Drops values off the end.
    void truncate(int64_t size) { size_ = size; }
    // Drops values off the front; the rest move up.
    void drop_front(int64_t count) {
        size_ -= count;
        if (count > 0) std::memmove(data_, data_ + count, static_cast<size_t>(size_) * sizeof(T));
    }
    // Counts values written into reserved room through end().
    void extend(int64_t count) { size_ += count; }
    void clear() { size_ = 0; }
    // Gives the memory back.
    void release() { pod_vector().swap(*this); }
    void swap(pod_vector& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }

    T* data() { return data_; }
    const T* data() const { return data_; }
    T* end() { return data_ + size_; }
    int64_t size() const { return size_; }
    int64_t capacity() const { return capacity_; }
    bool empty() const { return size_ == 0; }
    T& operator[](int64_t i) { return data_[i]; }
    const T& operator[](int64_t i) const { return data_[i]; }

private:
    void grow(int64_t needed) {
        int64_t capacity = capacity_ + capacity_ / 2 + 64;
        if (capacity < needed) capacity = needed;
        void* fresh = std::realloc(data_, static_cast<size_t>(capacity) * sizeof(T));
        if (fresh == nullptr) throw std::bad_alloc();
        data_ = static_cast<T*>(fresh);
        capacity_ = capacity;
    }

    T* data_ = nullptr;
    int64_t size_ = 0;
    int64_t capacity_ = 0;
};

}  // namespace encoder_engine
