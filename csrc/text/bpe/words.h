// Cuts the buffered text into words, and looks up their tokens.
//
// How it works: characters become UTF-8 in a buffer of some 2,048 bytes, with the source character of
// each byte where spans are kept. A full buffer is cut into words, which are looked up; only a word that
// is not known is segmented and kept, after a search for the likely tokens of some such words together. The
// word at the buffer's end waits for what follows; for a long one the buffer grows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>

#include "text/bpe/known_words.h"
#include "text/bpe/segmenter.h"
#include "text/bpe/text_buffer.h"
#include "text/sequence_encoder.h"

namespace encoder_engine {

struct bpe_scratch : encoder_scratch {
    explicit bpe_scratch(const bpe_model& model) : segmenter(model) {}

    sourced_text stretch, spare;   // text under normalization
    sourced_text buffer;           // normalized text in which added tokens are searched ...
    pod_vector<uint32_t> codes;    // ... its characters alone
    bpe_text text;                 // the words under way
    pod_vector<bpe_piece> pieces;  // of one word
    bpe_paths paths;               // of words that are not known
    word_starts starts;
    known_words known;
    bpe_segmenter segmenter;

    // Without the known words, which are kept on purpose: 4 MiB, and up to 17 MiB of their store.
    int64_t num_bytes() const override {
        return text.num_bytes() + segmenter.num_bytes() + 4 * codes.capacity() +
               8 * (stretch.capacity() + spare.capacity() + buffer.capacity() + pieces.capacity());
    }
};

template <bool with_spans>
class bpe_words {
public:
    bpe_words(const bpe_lane& lane, bpe_scratch& scratch, token_buffer& out, int64_t limit)
        : lane_(lane), model_(lane.model), scratch_(scratch), text_(scratch.text), writer_(lane, scratch.text), out_(out), limit_(limit),
          marks_(model_.rules().symbols == bpe_symbols::characters),
          by_segment_(lane.splitting.pattern == word_pattern::whole ||
                      lane.splitting.pattern == word_pattern::blanks),
          // Of a text that is cut, not much more is read than is kept: 4 bytes a token.
          filled_(std::max(kLeastFilled, std::min<int64_t>(word_starts::kBytes, 4 * std::min<int64_t>(limit - out.size(), word_starts::kBytes)))),
          drain_at_(filled_) {
        clear();
    }

    bool full() const { return out_.size() >= limit_; }
    void letter(uint32_t code, int64_t source) {
        const bpe_splitting& how = lane_.splitting;
        if (how.metaspace && code == ' ') code = bpe_model::kMark;
        if (!inside_) {
            inside_ = true;
            if (how.prefix && code != ' ') writer_.put(' ', source);
            if (how.metaspace && code != bpe_model::kMark && prepends(source)) writer_.put(bpe_model::kMark, source);
        }
        writer_.put(code, source);
        if (text_.bytes.size() >= drain_at_) drain(false);
    }
    // Ends a segment: text between added tokens.
    void end_text() {
        if (!inside_) return;
        drain(true);
        clear();
        if (by_segment_) ++num_words_;
        inside_ = false;
    }
    void added(int32_t id, int64_t start, int64_t stop, blank_ends blanks) {
        end_text();
        out_.ids.append(id);
        if (with_spans) add_span(static_cast<int32_t>(start), static_cast<int32_t>(stop));
        out_.note_blanks(blanks);
        ++num_words_;
    }
    // Takes plain characters of a segment's inside; returns how many.
    template <typename Char>
    int64_t take(const Char* text, int64_t length, int64_t at) {
        const bpe_splitting& how = lane_.splitting;
        if (!inside_ && (how.prefix || how.metaspace)) return 0;
        const int64_t done = writer_.take(text, length, at, drain_at_);
        if (done > 0) inside_ = true;
        if (filled()) drain(false);
        return done;
    }

private:
    static constexpr int64_t kLeastFilled = 256;

    bool filled() const { return text_.bytes.size() >= drain_at_; }
    bool prepends(int64_t source) const {
        const prepend_scheme scheme = lane_.splitting.scheme;
        return scheme == prepend_scheme::always || (scheme == prepend_scheme::first && source == 0);
    }
    void clear() {
        text_.truncate(0);
        drain_at_ = filled_;
    }

    // Turns the words of the buffer into tokens; the last one stays, unless the segment ends.
    void drain(bool last) {
        const int64_t size = text_.bytes.size();
        text_.bytes.reserve_more(word_starts::kPadding);
        text_.classes.reserve_more(word_starts::kPadding);
        int64_t at = 0;
        while (at < size && !full()) {
            int64_t end = std::min<int64_t>(size, at + word_starts::kBytes);
            while (end < size && (text_.bytes[end] & 0xC0) == 0x80) --end;
            lane_.cutter.cut(text_between(at, end, last && end == size), scratch_.starts);
            const int64_t taken = scratch_.starts.places[scratch_.starts.count];
            emit(at);
            at += taken;
            if (taken > 0) {
                // What is left is the word at the end, or a little more.
                if (!last && size - at < word_starts::kBytes) break;
                continue;
            }
            // One word, which may be longer than the cutter's stretches.
            const classed_text rest = text_between(at, size, last);
            const int64_t stop = word_matcher(lane_.cutter.pattern(), rest).match(0);
            if (stop < 0) break;
            if (caches()) {
                if (!find_known(at, stop)) encode_new(at, stop, nullptr);
            } else if (!skips(at)) {
                encode_word(at, stop, nullptr);
            }
            at += stop;
        }
        text_.drop_front(at, with_spans);
        // A word that fills the buffer is looked at again when it has doubled.
        drain_at_ = std::max(filled_, 2 * text_.bytes.size());
    }
    classed_text text_between(int64_t at, int64_t end, bool last) const {
        return {text_.bytes.data() + at, text_.classes.data() + at, lane_.chars.ascii(), end - at,
                last};
    }
    // Whether the words of the stretch that was cut last are kept: keys do not tell zero bytes from none.
    bool caches() const { return !scratch_.starts.nul && lane_.splitting.pattern != word_pattern::clip; }
    // Whether the word at a place is white space that goes.
    bool skips(int64_t at) const {
        if (lane_.splitting.pattern != word_pattern::clip) return false;
        const uint8_t byte = text_.bytes[at];
        return ((byte < 0x80 ? lane_.chars.ascii()[byte] : text_.classes[at]) & kSpaceClass) != 0;
    }

    // Appends the tokens of the words of a stretch that begins at byte `at`.
    void emit(int64_t at) {
        const word_starts& words = scratch_.starts;
        if (caches()) return emit_known(at);
        for (int i = 0; i < words.count && !full(); ++i) {
            const int64_t from = at + words.places[i];
            if (!skips(from)) encode_word(from, words.places[i + 1] - words.places[i], nullptr);
        }
    }
    void emit_known(int64_t at) {
        const word_starts& words = scratch_.starts;
        known_words& known = scratch_.known;
        known.look_up(text_.bytes.data() + at, words);
        constexpr int kMost = known_words::kMaxShort;
        out_.ids.reserve_more(int64_t{kMost} * words.count);
        int32_t* out = out_.ids.end();
        int ready = 0;  // the first word whose path was not sought
        for (int i = 0, num_words = words.count; i < num_words; ++i) {
            const int count = known.counts[i];
            std::memcpy(out, known.pieces + kMost * i, kMost * sizeof *out);
            out += count;
            if (with_spans || count == 0) {
                out_.ids.extend(out - out_.ids.end());
                const int64_t from = at + words.places[i];
                if (count == 0) {
                    const int64_t size = words.places[i + 1] - words.places[i];
                    const bpe_path* path = i < ready ? scratch_.paths.of(i) : nullptr;
                    if (path != nullptr || !find_known(from, size)) {
                        if (i >= ready) {
                            ready = walk_ahead(at, i);
                            path = scratch_.paths.of(i);
                        }
                        encode_new(from, size, path);
                    }
                    out_.ids.reserve_more(int64_t{kMost} * (words.count - i));
                    out = out_.ids.end();
                } else {
                    add_known_spans(count, from);
                    end_word();
                }
            }
            if (out - out_.ids.data() >= limit_) break;
        }
        out_.ids.extend(out - out_.ids.end());
    }
    // Finds the paths of word `first`, which is not known, and of more such words; returns the word behind
    // the last one that was looked at. Of equal words one has a path.
    int walk_ahead(int64_t at, int first) {
        const word_starts& words = scratch_.starts;
        bpe_paths& paths = scratch_.paths;
        const uint8_t* const bytes = text_.bytes.data() + at;
        int places[bpe_paths::kMostWords], num_places = 0;
        int end = first;
        for (; end < words.count && num_places < bpe_paths::kMostWords; ++end) {
            if (scratch_.known.counts[end] != 0) continue;
            scratch_.known.prefetch(bytes + words.places[end], words.places[end + 1] - words.places[end]);
            places[num_places++] = end;
        }
        paths.clear();
        int32_t ids[known_words::kMaxPieces];
        for (int k = 0; k < num_places; ++k) {
            const uint8_t* const word = bytes + words.places[places[k]];
            const int64_t size = words.places[places[k] + 1] - words.places[places[k]];
            if (k > 0 && scratch_.known.find(word, size, ids) > 0) continue;
            if (size <= bpe_paths::kMaxBytes) paths.add(places[k], word, size);
        }
        scratch_.segmenter.find(paths);
        return end;
    }
    // Appends the tokens of a word that is known; returns whether it is.
    bool find_known(int64_t from, int64_t size) {
        out_.ids.reserve_more(known_words::kMaxPieces);
        const int count = scratch_.known.find(text_.bytes.data() + from, size, out_.ids.end());
        if (count == 0) return false;
        out_.ids.extend(count);
        if (with_spans) add_known_spans(count, from);
        end_word();
        return true;
    }
    // Appends the tokens of a word that is not known, which it is from then on.
    void encode_new(int64_t from, int64_t size, const bpe_path* path) {
        const int64_t first = out_.size();
        encode_word(from, size, path);
        // The sizes of unknown tokens are not kept.
        const int32_t* const ids = out_.ids.data() + first;
        const int32_t unknown = marks_ && !model_.rules().byte_fallback ? model_.rules().unknown : -1;
        if (unknown >= 0 && std::find(ids, ids + out_.size() - first, unknown) != ids + out_.size() - first) return;
        scratch_.known.keep(text_.bytes.data() + from, size, ids, out_.size() - first);
    }
    void encode_word(int64_t from, int64_t size, const bpe_path* path) {
        pod_vector<bpe_piece>& pieces = scratch_.pieces;
        pieces.clear();
        scratch_.segmenter.cut(text_.bytes.data() + from, size, path, pieces);
        out_.ids.reserve_more(pieces.size());
        for (int64_t i = 0; i < pieces.size(); ++i) {
            out_.ids.push(pieces[i].id);
            if (!with_spans) continue;
            add_span_of(pieces[i].id, from, pieces[i].size, out_.size() - 1);
            from += pieces[i].size;
        }
        end_word();
    }
    void end_word() { num_words_ += !by_segment_; }

    // Appends the spans of the last `count` tokens, which are those of a word.
    void add_known_spans(int count, int64_t from) {
        const int64_t first = out_.size() - count;
        for (int64_t place = first; place < out_.size(); ++place) {
            const int32_t id = out_.ids[place];
            const uint32_t size = model_.token(id).size();
            add_span_of(id, from, size, place);
            from += size;
        }
    }
    void add_span_of(int32_t id, int64_t from, uint32_t size, int64_t place) {
        add_span(text_.sources[from], text_.sources[from + size - 1] + 1);
        if (!out_.with_blanks) return;
        const blank_ends ends = model_.blanks(id);
        if (ends.any()) out_.blanks.append({place, ends});
    }
    void add_span(int32_t start, int32_t stop) {
        out_.spans.append(start);
        out_.spans.append(stop);
        out_.words.append(num_words_);
    }

    const bpe_lane& lane_;
    const bpe_model& model_;
    bpe_scratch& scratch_;
    bpe_text& text_;
    bpe_writer<with_spans> writer_;
    token_buffer& out_;
    int64_t limit_;
    bool marks_, by_segment_;
    int64_t filled_, drain_at_;  // bytes of the buffer from which on it is cut: at first, and now
    bool inside_ = false;
    int32_t num_words_ = 0;
};

}  // namespace encoder_engine
