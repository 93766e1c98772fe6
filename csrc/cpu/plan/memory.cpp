// Places a plan's buffers in memory, and keeps the memory from call to call.
#include <algorithm>
#include <new>
#include <utility>

#include "cpu/plan/plan.h"

namespace encoder_engine {
namespace {

constexpr std::align_val_t kAlignment{64};
// Larger buffers are freed after the call: a batch so large hides the cost of allocation.
constexpr size_t kMostKept = size_t{128} << 20;

}  // namespace

void plan::freed::operator()(void* memory) const { ::operator delete(memory, kAlignment); }

// In a forked child the lock may never be free again: make do without.
std::unique_lock<std::mutex> plan::lock() const {
    if (fork_count() == owner_) return std::unique_lock<std::mutex>(mutex_);
    return std::unique_lock<std::mutex>(mutex_, std::try_to_lock);
}

std::shared_ptr<const plan::placement> plan::placed_ranges() const {
    const auto held = lock();
    if (!held.owns_lock()) return place_ranges();
    if (placement_ == nullptr || placement_->num_steps != steps_.size()) placement_ = place_ranges();
    return placement_;
}

// The largest first, each in the first gap between those that live at the same time. A row of each
// takes whole cache lines, so that the place does not depend on the number of rows.
std::shared_ptr<const plan::placement> plan::place_ranges() const {
    const auto found = std::make_shared<placement>();
    found->num_steps = steps_.size();
    found->offsets.resize(ranges_.size());
    const auto size_of = [&](size_t range) {
        const described& own = buffers_[static_cast<size_t>(ranges_[range].number)];
        return static_cast<size_t>(whole(own.row_bytes, 64));
    };
    const auto domain_of = [&](size_t range) {
        return static_cast<size_t>(buffers_[static_cast<size_t>(ranges_[range].number)].domain);
    };
    std::vector<size_t> order(ranges_.size()), near;
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return size_of(a) > size_of(b); });
    for (size_t placed = 0; placed < order.size(); ++placed) {
        const size_t range = order[placed], size = size_of(range);
        near.clear();
        for (size_t i = 0; i < placed; ++i) {
            const live_range &own = ranges_[range], &other = ranges_[order[i]];
            const bool meets = own.first <= other.last && other.first <= own.last;
            if (meets && domain_of(range) == domain_of(order[i])) near.push_back(order[i]);
        }
        std::sort(near.begin(), near.end(),
                  [&](size_t a, size_t b) { return found->offsets[a] < found->offsets[b]; });
        size_t at = 0;
        for (const size_t other : near) {
            if (found->offsets[other] >= at + size) break;
            at = std::max(at, found->offsets[other] + size_of(other));
        }
        found->offsets[range] = at;
        size_t& most = found->row_bytes[domain_of(range)];
        most = std::max(most, at + size);
    }
    return found;
}

plan::memory plan::take(size_t bytes) const {
    memory taken;
    {
        const auto held = lock();
        if (held.owns_lock() && !idle_.empty()) {
            taken = std::move(idle_.back());
            idle_.pop_back();
        }
    }
    if (taken.bytes < bytes) {
        taken.content.reset();
        taken.content.reset(::operator new(bytes, kAlignment));
        taken.bytes = bytes;
    }
    return taken;
}

void plan::give_back(memory&& taken) const {
    if (taken.bytes > kMostKept) return;
    const auto held = lock();
    if (held.owns_lock()) idle_.push_back(std::move(taken));
}

}  // namespace encoder_engine
