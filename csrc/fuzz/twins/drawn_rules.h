// Sets of normalization rules for the fuzz targets: such as are published, and odd ones.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fuzz/twins/slow_charsmap.h"

namespace encoder_engine {

struct rule_set {
    charsmap_rules table;
    std::string bytes;  // compiled
    std::shared_ptr<const charsmap> compiled;
};

// common_rules(), odd_rules() and binding_rules(), in this order.
const std::vector<rule_set>& rule_sets();

}  // namespace encoder_engine
