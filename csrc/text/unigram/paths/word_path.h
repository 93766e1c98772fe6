// Finds the path through one word while its characters arrive, however long the word is.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/pod_vector.h"
#include "text/unigram/paths/path_chooser.h"
#include "text/unigram/model.h"

namespace encoder_engine {

// Buffers of one thread for the word under way.
struct word_path_scratch {
    pod_vector<uint32_t> word;     // its characters
    pod_vector<int32_t> sources;   // with spans: the characters of the text that they came from
    pod_vector<uint32_t> unknown;  // characters of unknown pieces in a row, as far as they matter
    pod_vector<path_piece> pieces;
    path_search search;
    path_chooser* chooser = nullptr;  // of paths that need not be the best

    int64_t num_bytes() const {
        return 4 * (word.capacity() + unknown.capacity() + sources.capacity()) +
               static_cast<int64_t>(sizeof(path_piece)) * pieces.capacity() + search.num_bytes();
    }
};

// Calls sink.piece(start, stop, id) for each piece of the path, with places in scratch.word and
// scratch.sources; sources has one more entry, for the end. Calls sink.sum_before() for the sum of
// the scores before the word, and sink.word_done(place), with the search's place at the word's end,
// after the last piece.
template <bool with_spans, typename Sink>
class word_path {
public:
    word_path(const unigram_model& model, word_path_scratch& scratch, Sink& sink)
        : model_(model), scratch_(scratch), sink_(sink) {
        clear();
    }

    bool open() const { return open_; }
    void letter(uint32_t code, int64_t source) {
        open_ = true;
        scratch_.word.append(code);
        if (with_spans) {
            scratch_.sources.reserve_more(2);
            scratch_.sources.push(static_cast<int32_t>(source));
        }
        if (scratch_.word.size() >= part_at_) take_part();
    }
    // Ends the word, if there is one; `next` is the source of what follows.
    void end(int64_t next) {
        if (!open_) return;
        if (with_spans) scratch_.sources.push(static_cast<int32_t>(next));
        const int64_t size = scratch_.word.size();
        if (scratch_.chooser != nullptr) {
            choose();
            emit(size);
            return clear();
        }
        if (!searching_) scratch_.search.start(sink_.sum_before());
        scratch_.search.advance(model_, scratch_.word.data(), size, true);
        trace(size);
        sink_.word_done(size);
        clear();
    }

private:
    static constexpr int64_t kPart = 4096;
    // From this many characters on, two equally good paths are no longer both kept.
    static constexpr int64_t kMaxOpen = 1 << 19;

    // Emits the pieces that no later character can change, and drops their characters.
    void take_part() {
        if (scratch_.chooser != nullptr) return take_chosen();
        path_search& search = scratch_.search;
        if (!searching_) search.start(sink_.sum_before());
        searching_ = true;
        const int64_t size = scratch_.word.size();
        search.advance(model_, scratch_.word.data(), size, false);
        int64_t settled = search.find_settled();
        if (settled == 0 && size >= kMaxOpen) settled = search.done();
        if (settled > 0) {
            trace(settled);
            search.forget(settled);
            drop(settled);
        }
        // While nothing settles, each wait is longer than the last: a search costs time in
        // proportion.
        part_at_ = scratch_.word.size() + std::max(kPart, scratch_.word.size() / 2);
    }
    // Emits the chosen pieces that later characters hardly change.
    void take_chosen() {
        part_at_ = scratch_.chooser->max_word();
        if (scratch_.word.size() < part_at_) return;
        choose();
        const int64_t stop = emit(scratch_.word.size() - model_.max_size());
        drop(stop > 0 ? stop : emit(scratch_.word.size()));
    }
    void choose() {
        scratch_.pieces.clear();
        scratch_.chooser->choose(model_, scratch_.word.data(), scratch_.word.size(),
                                 scratch_.pieces);
    }
    void trace(int64_t stop) {
        scratch_.pieces.clear();
        scratch_.search.trace(model_, stop, scratch_.pieces);
        emit(stop);
    }
    // Emits the pieces that end at `stop` or before; returns the end of the last one.
    int64_t emit(int64_t stop) {
        const pod_vector<path_piece>& pieces = scratch_.pieces;
        int64_t start = 0;
        for (int64_t i = 0; i < pieces.size() && pieces[i].stop <= stop; ++i) {
            sink_.piece(start, pieces[i].stop, pieces[i].id);
            start = pieces[i].stop;
        }
        return start;
    }
    void drop(int64_t count) {
        scratch_.word.drop_front(count);
        if (with_spans) scratch_.sources.drop_front(count);
    }
    void clear() {
        open_ = searching_ = false;
        part_at_ = kPart;
        scratch_.word.clear();
        scratch_.sources.clear();
    }

    const unigram_model& model_;
    word_path_scratch& scratch_;
    Sink& sink_;
    int64_t part_at_ = kPart;  // characters of the word at which a part of it is taken
    bool open_ = false, searching_ = false;
};

}  // namespace encoder_engine
