// Canonical reordering, for the few texts in which a reordered character survives normalization.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "text/added_tokens.h"
#include "text/unicode/char_table.h"
#include "text/unicode/tables.h"

namespace encoder_engine {

// Stripping accents decomposes, sorts every run of characters of non-zero combining class by that
// class, and drops the marks. Where all of them are dropped, order does not matter and the scanner
// sorts nothing. Where one survives (Hangul tone marks, musical stems, marks younger than Unicode
// 8.0), the run is worked out here. The library aligns by position: the n-th character that is not
// an extra part of a decomposition belongs to the n-th character of the text.
template <typename Char, typename Sink>
class nonstarter_run {
public:
    nonstarter_run(const Char* text, int64_t length, const normalizer_options& options,
                   added_token_finder<Char>& finder, Sink& sink)
        : text_(text), length_(length), options_(options), finder_(finder), sink_(sink) {}

    // Emits the run around text[at], whose action is `nonstarter`; returns where scanning resumes.
    int64_t emit(int64_t at) {
        const int64_t from = find_start(at);
        // A character before `at` has been emitted up to its last starter.
        size_t skip = 0;
        int64_t to = from;
        for (; to < length_; ++to) {
            if (to > at && starts_added(to)) break;
            if (removed(to)) continue;
            uint32_t parts[kMaxDecomposition];
            const int count = decompose(to, parts);
            if (to > at && unicode_combining_class(parts[0]) == 0) break;
            sources_.push_back(to);
            for (int i = 0; i < count; ++i) {
                const uint32_t order = unicode_combining_class(parts[i]);
                items_.push_back({parts[i], order, i > 0});
                if (order == 0 && to < at) skip = items_.size();
            }
        }
        sort();
        put(skip);
        return to;
    }

private:
    struct part {
        uint32_t code;
        uint32_t order;  // combining class
        bool extra;      // not the first of its decomposition
    };

    bool removed(int64_t at) const {
        return options_.clean_text && (unicode_properties(text_[at]) & kUnicodeRemoved) != 0;
    }
    int decompose(int64_t at, uint32_t* parts) const {
        return unicode_decompose(static_cast<uint32_t>(text_[at]), parts);
    }
    // Whether an added token may begin at a removed character.
    bool starts_added(int64_t at) {
        added_match match;
        return finder_.find(at, match);
    }
    // The character with the last starter at or before `at`, or the start of the plain text.
    int64_t find_start(int64_t at) const {
        for (int64_t from = at;; --from) {
            uint32_t parts[kMaxDecomposition];
            if (!removed(from)) {
                decompose(from, parts);
                if (unicode_combining_class(parts[0]) == 0) return from;
            }
            if (from == finder_.segment_start()) return from;
        }
    }
    void sort() {
        for (auto begin = items_.begin(); begin != items_.end();) {
            if (begin->order == 0) {
                ++begin;
                continue;
            }
            const auto end =
                std::find_if(begin, items_.end(), [](const part& p) { return p.order == 0; });
            std::stable_sort(begin, end,
                             [](const part& a, const part& b) { return a.order < b.order; });
            begin = end;
        }
    }
    void put(size_t skip) {
        size_t num_sources = 0;
        for (size_t i = 0; i < items_.size(); ++i) {
            if (!items_[i].extra) ++num_sources;
            if (i < skip || (unicode_properties(items_[i].code) & kUnicodeMark) != 0) continue;
            normal_form form;
            lower_code_point(items_[i].code, options_, form);
            for (int j = 0; j < form.count; ++j) {
                form.chars[j].payload = sink_.payload(form.chars[j].code);
                sink_.item(form.chars[j], sources_[num_sources - 1]);
            }
        }
    }

    const Char* text_;
    int64_t length_;
    const normalizer_options& options_;
    added_token_finder<Char>& finder_;
    Sink& sink_;
    std::vector<part> items_;
    std::vector<int64_t> sources_;
};

}  // namespace encoder_engine
