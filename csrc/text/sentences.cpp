// One walk over the characters: each is looked at once, runs behind a mark once more.
#include "text/sentences.h"

namespace encoder_engine {
namespace {

// Of characters below U+0100; the others are few.
enum char_class : uint8_t { kPlain = 0, kSpace = 1, kMark = 2, kClosing = 4, kWide = 8 };

struct class_table {
    uint8_t of[256] = {};
    constexpr class_table() {
        for (int i = 0x09; i <= 0x0D; ++i) of[i] = kSpace;
        for (int i = 0x1C; i <= 0x20; ++i) of[i] = kSpace;
        of[0x85] = of[0xA0] = kSpace;
        of[static_cast<int>('.')] = of[static_cast<int>('!')] = of[static_cast<int>('?')] = kMark;
        of[static_cast<int>('"')] = of[static_cast<int>('\'')] = kClosing;
        of[static_cast<int>(')')] = of[static_cast<int>(']')] = of[0xBB] = kClosing;
    }
};
constexpr class_table kClasses;

uint8_t class_of_other(uint32_t code) {
    if (code >= 0x2000 && code <= 0x200A) return kSpace;
    switch (code) {
        case 0x1680: case 0x2028: case 0x2029: case 0x202F: case 0x205F: case 0x3000:
            return kSpace;
        case 0x2026:
            return kMark;
        case 0x2019: case 0x201D: case 0x300D: case 0x300F: case 0xFF09:
            return kClosing;
        case 0x3002: case 0xFF01: case 0xFF1F: case 0xFF61:
            return kWide;
        default:
            return kPlain;
    }
}

template <typename Char>
class sentence_finder {
public:
    sentence_finder(const Char* text, int64_t size, std::vector<sentence_span>& out)
        : text_(text), size_(size), out_(out) {}

    void find() {
        uint8_t last = kPlain;  // the class of the character before
        for (int64_t at = 0; at < size_;) {
            const uint8_t here = class_at(at);
            int64_t next = -1;
            if ((last & (kMark | kWide)) != 0) next = behind_mark(at, last);
            if (next < 0 && here == kSpace && last != kSpace) next = behind_line(at);
            if (next <= at) next = at + 1;
            last = class_at(next - 1);
            at = next;
        }
        keep(size_);
    }

private:
    uint8_t class_at(int64_t at) const {
        const auto code = static_cast<uint32_t>(text_[at]);
        return code < 256 ? kClasses.of[code] : class_of_other(code);
    }
    int64_t skip(int64_t at, uint8_t wanted) const {
        while (at < size_ && class_at(at) == wanted) ++at;
        return at;
    }
    // Ends the sentence that a mark before `at` ends, and returns where the next may begin; -1: it ends none.
    int64_t behind_mark(int64_t at, uint8_t mark) {
        const int64_t end = skip(at, kClosing);
        const int64_t next = skip(end, kSpace);
        const bool ends = mark == kMark ? next > end : next < size_ && class_at(next) != kWide;
        return ends ? cut(end, next) : -1;
    }
    // Ends the line that white space from `at` on ends.
    int64_t behind_line(int64_t at) {
        bool line_end = false;
        int64_t next = at;
        for (; next < size_ && class_at(next) == kSpace; ++next) line_end |= text_[next] == '\n';
        return line_end ? cut(at, next) : -1;
    }
    int64_t cut(int64_t end, int64_t next) {
        keep(end);
        begin_ = next;
        return next;
    }
    void keep(int64_t end) {
        int64_t begin = begin_;
        while (begin < end && class_at(begin) == kSpace) ++begin;
        while (begin < end && class_at(end - 1) == kSpace) --end;
        if (begin < end) out_.push_back({begin, end});
    }

    const Char* text_;
    int64_t size_;
    int64_t begin_ = 0;  // of the sentence under way
    std::vector<sentence_span>& out_;
};

}  // namespace

void find_sentences(const text_view& text, std::vector<sentence_span>& out) {
    switch (text.width) {
        case char_width::ascii:
        case char_width::one:
            return sentence_finder<uint8_t>(static_cast<const uint8_t*>(text.data), text.length, out).find();
        case char_width::two:
            return sentence_finder<uint16_t>(static_cast<const uint16_t*>(text.data), text.length, out).find();
        case char_width::four:
            return sentence_finder<uint32_t>(static_cast<const uint32_t*>(text.data), text.length, out).find();
    }
}

}  // namespace encoder_engine
