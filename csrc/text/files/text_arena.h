// Texts of UTF-8, as encoders read them: characters of one width.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/text_view.h"

namespace encoder_engine {

// Memory for characters, which never move.
class text_arena {
public:
    // Makes a view of a text, as Python would hold it: ASCII as it stands, other characters copied in
    // one, two or four bytes each. False if the bytes are not UTF-8.
    bool view(std::string_view utf8, text_view& out);
    // Copies a text, for one that would not stay.
    std::string_view keep(std::string_view bytes);

private:
    static constexpr size_t kBlock = size_t{1} << 18;

    void* take(size_t num_bytes);

    std::vector<std::unique_ptr<uint8_t[]>> blocks_;
    size_t left_ = 0;
    uint8_t* next_ = nullptr;
};

}  // namespace encoder_engine
