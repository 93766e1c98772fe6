// Walks the members of one object.
#include "text/files/json_line.h"

#include <algorithm>
#include <iterator>

#include "text/json/json_cursor.h"

namespace encoder_engine {
namespace {

class line_reader {
public:
    line_reader(std::string_view line, std::string_view key, std::string& buffer)
        : at_(line), key_(key), buffer_(buffer) {}

    json_text read(std::string_view& text) {
        const bool sound = read_object(0, &text);
        at_.skip_space();
        return sound && at_.num_left() == 0 ? found_ : json_text::unsure;
    }

private:
    static constexpr int kMostDepth = 64;
    static constexpr size_t kMostKeys = 64;

    // At the top, `text` is where the value of the key goes.
    bool read_object(int depth, std::string_view* text) {
        std::string_view keys[kMostKeys];
        size_t count = 0;
        if (!at_.take('{')) return false;
        if (at_.take('}')) return true;
        do {
            std::string_view& key = keys[count];
            if (count + 1 == kMostKeys || !at_.take_sound_string(key)) return false;
            if (std::find(keys, keys + count, key) != keys + count) return false;
            ++count;
            if (!at_.take(':')) return false;
            const bool wanted = text != nullptr && key == key_;
            if (!(wanted ? read_text(*text) : skip_value(depth + 1))) return false;
        } while (at_.take(','));
        return at_.take('}');
    }
    bool read_text(std::string_view& text) {
        if (at_.take_sound_string(text)) {
            found_ = json_text::plain;
            return true;
        }
        buffer_.clear();
        if (!at_.read_string(buffer_)) return false;
        text = buffer_;
        found_ = json_text::escaped;
        return true;
    }
    bool skip_value(int depth) {
        if (depth > kMostDepth) return false;
        at_.skip_space();
        const char c = at_.peek();
        if (c == '"') {
            std::string_view plain;
            if (at_.take_sound_string(plain)) return true;
            skipped_.clear();
            return at_.read_string(skipped_);
        }
        if (c == '{') return read_object(depth, nullptr);
        if (c == '[') return skip_array(depth);
        if (c == 't') return at_.take_word("true");
        if (c == 'f') return at_.take_word("false");
        if (c == 'n') return at_.take_word("null");
        return at_.skip_number();
    }
    bool skip_array(int depth) {
        if (!at_.take('[')) return false;
        if (at_.take(']')) return true;
        do {
            if (!skip_value(depth + 1)) return false;
        } while (at_.take(','));
        return at_.take(']');
    }

    json_cursor at_;
    std::string_view key_;
    std::string& buffer_;
    std::string skipped_;
    json_text found_ = json_text::unsure;
};

}  // namespace

json_text read_json_line(std::string_view line, std::string_view key, std::string& buffer, std::string_view& text) {
    return line_reader(line, key, buffer).read(text);
}

}  // namespace encoder_engine
