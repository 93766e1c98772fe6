// Memory that a thread's kernels compute in, kept from call to call.
#pragma once

#include <cstddef>

namespace encoder_engine {

// At least `bytes`, aligned to 64; what the last call left there may be gone. Null: there is no memory.
void* thread_scratch(size_t bytes);

}  // namespace encoder_engine
