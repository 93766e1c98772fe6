// The masks that cut a key to its size.
#include "text/word_cache.h"

namespace encoder_engine {
namespace {

constexpr uint64_t ones(int bytes) { return bytes >= 8 ? ~0ull : (1ull << (8 * bytes)) - 1; }

}  // namespace

const word_key::mask word_key::kMasks[kMaxSize + 1] = {
    {ones(0), 0},       {ones(1), 0},       {ones(2), 0},       {ones(3), 0},
    {ones(4), 0},       {ones(5), 0},       {ones(6), 0},       {ones(7), 0},
    {ones(8), 0},       {ones(8), ones(1)}, {ones(8), ones(2)}, {ones(8), ones(3)},
    {ones(8), ones(4)}, {ones(8), ones(5)}, {ones(8), ones(6)}, {ones(8), ones(7)},
    {ones(8), ones(8)},
};

}  // namespace encoder_engine
