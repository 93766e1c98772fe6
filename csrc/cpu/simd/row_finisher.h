// Interleaves the epilogue of a dense layer, row by row, with the products of the next rows.
#pragma once

#include "cpu/simd/vector.h"

namespace encoder_engine {
namespace EE_ISA {

// Calls finish_row(panel, row) for each row of a block. Each call of some() finishes a few rows;
// rest() finishes the others when the next block is complete.
template <typename FinishRow>
class row_finisher {
public:
    explicit row_finisher(const FinishRow& finish_row) : finish_row_(finish_row) {}

    EE_INLINE void begin(int64_t panel) { next_panel_ = panel; }
    // Starts on a block whose sums are complete, in the panel named by begin().
    EE_INLINE void operator()(int64_t first_row, int64_t num_rows) {
        rest();
        panel_ = next_panel_;
        row_ = first_row;
        last_row_ = first_row + num_rows;
        num_rows_ = num_rows;
        owed_ = 0;
    }
    // Finishes a share of the rows such that `pauses` calls finish the whole block.
    EE_INLINE void some(int64_t pauses) {
        for (owed_ += num_rows_; owed_ >= pauses && row_ < last_row_; owed_ -= pauses) {
            finish_row_(panel_, row_++);
        }
    }
    EE_INLINE void rest() {
        while (row_ < last_row_) finish_row_(panel_, row_++);
    }

private:
    const FinishRow& finish_row_;
    int64_t next_panel_ = 0, panel_ = 0;
    int64_t row_ = 0, last_row_ = 0, num_rows_ = 0, owed_ = 0;
};

// Passes on pauses only: the products are of gates, whose rows are not finished without their values.
template <typename Finisher>
struct pauses_of {
    Finisher& finisher;
    EE_INLINE void operator()(int64_t, int64_t) {}
    EE_INLINE void some(int64_t pauses) { finisher.some(pauses); }
    EE_INLINE void rest() {}
};

}  // namespace EE_ISA
}  // namespace encoder_engine
