// Rows: read no more of a text than its row needs, cut, and set between the special tokens.
#include "text/batch/row_encoder.h"

#include <algorithm>
#include <limits>

namespace encoder_engine {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxCharacters = std::numeric_limits<int32_t>::max();

status at_row(status result, int64_t row) {
    if (!result.ok()) result.row = row;
    return result;
}

}  // namespace

row_encoder::row_encoder(const batch_encoder& batch, const encode_options& options,
                         batch_worker& worker, bool paired)
    : encoder_(batch.encoder()), options_(options), worker_(worker),
      template_(paired ? batch.pair() : batch.single()) {
    const int64_t special = options.add_special_tokens ? template_.num_special() : 0;
    room_ = options.strategy == truncation_strategy::none ? kNoLimit
                                                          : options.max_length - special;
    // Rows of one text with fixed tokens around it, cut on the right or not at all.
    can_group_ = !paired && !options.overflow && !options.left && options.sampling == nullptr &&
                 options.strategy != truncation_strategy::only_second;
    prefixed_ = batch.trim() == span_trim::prefixed;
    frame_.room = room_;
    if (!options.add_special_tokens) return;
    frame_.before = template_.before.data();
    frame_.num_before = static_cast<int64_t>(template_.before.size());
    frame_.after = template_.after.data();
    frame_.num_after = static_cast<int64_t>(template_.after.size());
}

int64_t row_encoder::encode_together(const batch_input& input, int64_t index, int64_t end,
                                     uint8_t* truncated) {
    if (!can_group_ || input.first.starts != nullptr) return 0;
    lengths_.clear();
    row_results results{lengths_, truncated + index};
    const int64_t count = encoder_.encode_rows(input.first.views + index, end - index, frame_,
                                               *worker_.scratch, worker_.out, results);
    for (int64_t i = 0; i < count; ++i) {
        worker_.row_lengths.append(
            static_cast<int32_t>(lengths_[i] + frame_.num_before + frame_.num_after));
        worker_.first_lengths.append(lengths_[i]);
        worker_.samples.append(static_cast<int32_t>(index + i));
    }
    return count;
}

status row_encoder::encode(const batch_input& input, int64_t index, uint8_t& truncated) {
    sample_ = static_cast<int32_t>(index);
    const text_pieces first = pieces(input.first, index);
    if (input.paired()) {
        const text_pieces second = pieces(input.second, index);
        return at_row(encode_sliced(first, &second, truncated), index);
    }
    const bool streaming = room_ == kNoLimit || (!options_.overflow && !options_.left);
    return at_row(streaming ? encode_streaming(first, truncated)
                            : encode_sliced(first, nullptr, truncated),
                  index);
}

status row_encoder::encode_text(const text_pieces& text, int64_t limit, bool second,
                                token_buffer& out) {
    for (int64_t i = 0; i < text.count; ++i) {
        if (text.first[i].length > kMaxCharacters) {
            return {error_code::text_too_long, -1, text.first[i].length, second};
        }
    }
    // However often a text is read, and by whichever thread, its segmentations are the same.
    const uint64_t place = 2 * static_cast<uint64_t>(sample_) + (second ? 1 : 0);
    random_stream random(options_.sampling == nullptr ? 0 : options_.sampling->seed, place);
    status result = text.words ? encode_words(text, limit, random, out)
                               : encode_view(*text.first, limit, random, out);
    result.second = second;
    // Reading stops at the end of a block; what it read beyond the limit must not show.
    if (out.size() > limit) out.truncate(limit);
    return result;
}

// Each word by itself: its offsets are its own, and its tokens are one word whatever it holds.
status row_encoder::encode_words(const text_pieces& text, int64_t limit, random_stream& random,
                                 token_buffer& out) {
    for (int64_t i = 0; i < text.count && out.size() < limit; ++i) {
        const int64_t first = out.size();
        status result = encode_view(text.first[i], limit, random, out);
        result.word = i;
        if (!result.ok()) return result;
        for (int64_t token = first; out.with_spans && token < out.size(); ++token) {
            out.words[token] = static_cast<int32_t>(i);
        }
    }
    return {};
}

status row_encoder::encode_view(const text_view& text, int64_t limit, random_stream& random,
                                token_buffer& out) {
    if (options_.sampling == nullptr) return encoder_.encode(text, limit, *worker_.scratch, out);
    return encode_sampled(encoder_, text, limit, *options_.sampling, random, *worker_.scratch, out);
}

// The common case: one text, cut on the right or not at all, straight into the output.
status row_encoder::encode_streaming(const text_pieces& text, uint8_t& truncated) {
    token_buffer& out = worker_.out;
    const int64_t row_start = out.size();
    int64_t num_tokens = 0;
    for (const template_piece& piece : template_.pieces) {
        if (piece.kind == piece_kind::special) {
            if (options_.add_special_tokens) {
                out.append_special(piece.ids.data(), static_cast<int64_t>(piece.ids.size()));
            }
            continue;
        }
        const int64_t start = out.size();
        // One token more than fits tells that something is cut off.
        const int64_t limit = room_ == kNoLimit ? kNoLimit : start + room_ + 1;
        const status result = encode_text(text, limit, false, out);
        if (!result.ok()) return result;
        num_tokens = out.size() - start;
        if (num_tokens > room_) {
            if (options_.strategy == truncation_strategy::only_second) {
                return {error_code::cannot_truncate, -1, num_tokens, true};
            }
            truncated = 1;
            num_tokens = room_;
            out.truncate(start + room_);
        }
        if (!out.blanks.empty()) trim_spans(start);
    }
    end_row(row_start, num_tokens);
    return {};
}

status row_encoder::encode_sliced(const text_pieces& first, const text_pieces* second,
                                  uint8_t& truncated) {
    status result = encode_texts(first, second);
    if (!result.ok()) return result;
    const int64_t first_size = worker_.first.size(), second_size = worker_.second.size();
    kept_lengths kept{};
    result = share_room(options_.strategy, room_, second != nullptr, first_size, second_size, kept);
    if (!result.ok()) return result;
    if (options_.overflow) {
        result = overflow_ranges(first_size, kept.first, options_.stride, options_.left,
                                 worker_.first_ranges);
        if (!result.ok()) return result;
        result = overflow_ranges(second_size, kept.second, options_.stride, options_.left,
                                 worker_.second_ranges);
        result.second = true;
        if (!result.ok()) return result;
        return add_overflow();
    }
    truncated = kept.first < first_size || kept.second < second_size;
    const int64_t first_start = options_.left ? first_size - kept.first : 0;
    const int64_t second_start = options_.left ? second_size - kept.second : 0;
    add_row({first_start, first_start + kept.first}, {second_start, second_start + kept.second});
    return {};
}

// Tokenizes the text or texts into the worker's buffers, as far as they can matter.
status row_encoder::encode_texts(const text_pieces& first, const text_pieces* second) {
    const bool all = room_ == kNoLimit || options_.overflow || options_.left;
    int64_t limit = all ? kNoLimit : room_ + 1;
    for (;;) {
        worker_.first.clear();
        worker_.second.clear();
        status result = encode_text(first, limit, false, worker_.first);
        if (!result.ok() || second == nullptr) return result;
        result = encode_text(*second, limit, true, worker_.second);
        if (!result.ok() || all) return result;
        // Of two texts that both fill the row, the longer one gets the odd token: read on until
        // one of them ends.
        const bool undecided = options_.strategy == truncation_strategy::longest_first &&
                               room_ % 2 == 1 && worker_.first.size() >= limit &&
                               worker_.second.size() >= limit;
        if (!undecided) return {};
        limit *= 4;
    }
}

// The row proper, then what the library's pairwise merge yields: each further slice of the text
// that comes first in the row with every slice of the other, then the first slice with the rest.
status row_encoder::add_overflow() {
    bool second_leads = false;
    for (const template_piece& piece : template_.pieces) {
        if (piece.kind == piece_kind::special) continue;
        second_leads = piece.kind == piece_kind::second;
        break;
    }
    const auto& leading = second_leads ? worker_.second_ranges : worker_.first_ranges;
    const auto& following = second_leads ? worker_.first_ranges : worker_.second_ranges;
    const auto add = [&](const token_range& a, const token_range& b) {
        second_leads ? add_row(b, a) : add_row(a, b);
    };
    add(leading[0], following[0]);
    for (size_t i = 1; i < leading.size(); ++i) {
        for (const token_range& range : following) add(leading[i], range);
    }
    for (size_t j = 1; j < following.size(); ++j) add(leading[0], following[j]);
    return {};
}

void row_encoder::add_row(token_range first, token_range second) {
    token_buffer& out = worker_.out;
    const int64_t row_start = out.size();
    for (const template_piece& piece : template_.pieces) {
        switch (piece.kind) {
            case piece_kind::special:
                if (options_.add_special_tokens) {
                    out.append_special(piece.ids.data(), static_cast<int64_t>(piece.ids.size()));
                }
                break;
            case piece_kind::first: add_text(worker_.first, first); break;
            case piece_kind::second: add_text(worker_.second, second); break;
        }
    }
    end_row(row_start, first.stop - first.start);
}

void row_encoder::add_text(const token_buffer& text, token_range kept) {
    const int64_t start = worker_.out.size();
    worker_.out.append(text, kept.start, kept.stop);
    if (!worker_.out.blanks.empty()) trim_spans(start);
}

// Leaves white space at the ends of a row's tokens, which begin at `start`, out of their spans.
void row_encoder::trim_spans(int64_t start) {
    token_buffer& out = worker_.out;
    for (int64_t i = 0; i < out.blanks.size(); ++i) {
        const blank_token& token = out.blanks[i];
        int32_t& from = out.spans[2 * token.place];
        int32_t& to = out.spans[2 * token.place + 1];
        const bool begins = token.place == start || from == 0;
        const bool kept = prefixed_ && begins && token.blanks.leading == 1;
        from = std::min(kept ? from : from + token.blanks.leading, to);
        if (to >= token.blanks.trailing) to = std::max(to - token.blanks.trailing, from);
    }
    out.blanks.clear();
}

void row_encoder::end_row(int64_t start, int64_t first_length) {
    worker_.row_lengths.append(static_cast<int32_t>(worker_.out.size() - start));
    worker_.first_lengths.append(static_cast<int32_t>(first_length));
    worker_.samples.append(sample_);
}

}  // namespace encoder_engine
