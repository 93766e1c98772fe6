// The masks that cut a key to its size.
#include "text/words/word_key.h"

namespace encoder_engine {

const word_key::mask word_key::kMasks[kMaxSize + 1] = {
    mask_of(0),  mask_of(1),  mask_of(2),  mask_of(3),  mask_of(4),  mask_of(5),
    mask_of(6),  mask_of(7),  mask_of(8),  mask_of(9),  mask_of(10), mask_of(11),
    mask_of(12), mask_of(13), mask_of(14), mask_of(15), mask_of(16),
};

}  // namespace encoder_engine
