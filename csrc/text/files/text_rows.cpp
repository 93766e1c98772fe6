// Cuts a stretch of a file into parts of whole lines, which threads take in turn.
#include "text/files/text_rows.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "common/parallel.h"
#include "text/files/json_line.h"

namespace encoder_engine {
namespace {

// Lines of fewer bytes are read by one thread.
constexpr int64_t kPartBytes = int64_t{1} << 19;

// The place behind the line that holds byte `at`.
int64_t end_of_line(std::string_view file, int64_t at) {
    const size_t found = file.find('\n', static_cast<size_t>(at));
    return static_cast<int64_t>(found == std::string_view::npos ? file.size() : found + 1);
}

// Some whole lines, and their rows.
struct part {
    int64_t begin, end;
    int64_t done;  // behind the last line that was read
    std::vector<text_view> views;
    text_arena arena;
};

class part_reader {
public:
    part_reader(std::string_view file, const line_rules& rules, part& of) : file_(file), rules_(rules), part_(of) {}

    void read() {
        for (part_.done = part_.begin; part_.done < part_.end;) {
            const int64_t end = end_of_line(file_, part_.done), size = end - part_.done;
            text_view view;
            const bool sound = size <= rules_.most_bytes && read_line(line_of(part_.done, size), view);
            if (!sound || view.length > rules_.most_characters) return;
            part_.views.push_back(view);
            part_.done = end;
        }
    }

private:
    std::string_view line_of(int64_t begin, int64_t size) const {
        std::string_view line = file_.substr(static_cast<size_t>(begin), static_cast<size_t>(size));
        if (!line.empty() && line.back() == '\n') line.remove_suffix(1);
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        return line;
    }
    bool read_line(std::string_view line, text_view& view) {
        if (rules_.format == line_format::text) return part_.arena.view(line, view);
        std::string_view text;
        switch (read_json_line(line, rules_.key, buffer_, text)) {
            case json_text::plain: return part_.arena.view(text, view);
            case json_text::escaped: return part_.arena.view(part_.arena.keep(text), view);
            case json_text::unsure: break;
        }
        return false;
    }

    std::string_view file_;
    const line_rules& rules_;
    part& part_;
    std::string buffer_;
};

std::vector<part> cut_parts(std::string_view file, int64_t begin, int64_t wanted) {
    const auto size = static_cast<int64_t>(file.size());
    const int64_t stop = begin + std::min(wanted, size - begin);
    std::vector<part> parts;
    while (begin < stop) {
        const int64_t end = end_of_line(file, std::min(begin + kPartBytes, stop) - 1);
        parts.push_back({begin, end, begin, {}, {}});
        begin = end;
    }
    return parts;
}

}  // namespace

int64_t add_lines(std::string_view file, int64_t begin, int64_t wanted, const line_rules& rules, int num_threads,
                  text_rows& out) {
    std::vector<part> parts = cut_parts(file, begin, wanted);
    std::atomic<size_t> next{0};
    // What stands behind a line that is not sound is not wanted yet.
    std::atomic<size_t> stopped{parts.size()};
    const auto task = [&] {
        for (size_t i = next++; i < parts.size() && i <= stopped; i = next++) {
            try {
                part_reader(file, rules, parts[i]).read();
            } catch (const std::bad_alloc&) {
                // The lines from here on are somebody else's, as if they were not sound.
            }
            if (parts[i].done == parts[i].end) continue;
            size_t known = stopped;
            while (i < known && !stopped.compare_exchange_weak(known, i)) {
            }
        }
    };
    const auto most = static_cast<int>(std::min<size_t>(parts.size(), static_cast<size_t>(num_threads)));
    if (most > 1) run_parallel(most, task); else task();
    int64_t place = begin;
    for (size_t i = 0; i < parts.size() && i <= stopped; ++i) {
        out.views.insert(out.views.end(), parts[i].views.begin(), parts[i].views.end());
        out.arenas.push_back(std::move(parts[i].arena));
        place = parts[i].done;
    }
    out.num_bytes += place - begin;
    return place;
}

}  // namespace encoder_engine
