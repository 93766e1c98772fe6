// The scratch memory of a thread, kept from call to call.
#pragma once

#include <cstddef>

namespace encoder_engine {

// Returns at least `bytes`, aligned to 64, with undefined content; null: out of memory.
void* thread_scratch(size_t bytes);

}  // namespace encoder_engine
