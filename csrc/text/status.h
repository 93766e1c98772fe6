// The errors of encoding; every function below bindings/ reports by value.
#pragma once

#include <cstdint>

namespace encoder_engine {

enum class error_code : uint8_t {
    none,
    lone_surrogate,     // a code unit D800-DFFF: no UTF-8 encodes it; position is its character
    text_too_long,      // 2^31 characters or more: offsets are 32-bit
    too_many_tokens,    // 2^31 tokens or more in the batch: cu_seqlens is 32-bit
    cannot_truncate,    // only_first / only_second would have to remove the whole text
    stride_too_large,   // overflow rows of `position` tokens cannot share `stride` of them
    too_many_paths,     // the `position` best paths of a text take too much memory
    out_of_memory,      // an allocation failed
};

struct status {
    error_code code = error_code::none;
    int64_t row = -1;       // index in the batch
    int64_t position = -1;  // see error_code
    bool second = false;    // the text is the second one of its pair
    int64_t word = -1;      // of a text given as words, the one in error
    bool ok() const { return code == error_code::none; }
};

}  // namespace encoder_engine
