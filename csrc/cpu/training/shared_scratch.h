// Memory of a call that its threads share, kept from call to call.
#pragma once

#include <cstddef>

namespace encoder_engine {

// Returns at least `bytes`, aligned to 64, with undefined content, until the calling thread's next call.
// Throws std::bad_alloc.
void* shared_scratch(size_t bytes);

}  // namespace encoder_engine
