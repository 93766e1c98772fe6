// Digits first, then the exponent, the rounding of each step that of serde_json.
#include "text/json/json_number.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

namespace encoder_engine {
namespace {

constexpr int64_t kMaxPower = 308;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The nearest double to a power of ten.
double power_of_ten(int64_t exponent) {
    return std::strtod(("1e" + std::to_string(exponent)).c_str(), nullptr);
}

const double* powers_of_ten() {
    static const auto* powers = [] {
        auto* out = new double[kMaxPower + 1];
        for (int64_t i = 0; i <= kMaxPower; ++i) out[i] = power_of_ten(i);
        return out;
    }();
    return powers;
}

double scale(double number, int64_t exponent) {
    while (exponent < -kMaxPower && number != 0.0) {
        number /= powers_of_ten()[kMaxPower];
        exponent += kMaxPower;
    }
    if (number == 0.0) return number;
    if (exponent > kMaxPower) return std::numeric_limits<double>::infinity();
    return exponent < 0 ? number / powers_of_ten()[-exponent] : number * powers_of_ten()[exponent];
}

}  // namespace

double read_json_number(const char* text, size_t size) {
    const char* at = text;
    const char* end = text + size;
    const bool negative = at < end && *at == '-';
    at += negative;
    uint64_t digits = 0;
    int64_t exponent = 0;
    constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
    constexpr uint64_t kRoomForMore = 1'000'000'000'000'000'000;
    for (int64_t places = 0; places < 2; ++places) {
        bool full = false;
        for (; at < end && is_digit(*at); ++at) {
            const auto digit = static_cast<uint64_t>(*at - '0');
            full = full || (digits >= kRoomForMore && digits > (kMost - digit) / 10);
            if (!full) digits = digits * 10 + digit;
            exponent += (full ? 1 : 0) - places;
        }
        if (at == end || *at != '.') break;
        ++at;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        // More than this is nothing or too much, whatever the digits.
        constexpr long long kFar = 1'000'000'000;
        const long long written = std::strtoll(std::string(at + 1, end).c_str(), nullptr, 10);
        exponent += std::clamp(written, -kFar, kFar);
    }
    const double number = scale(static_cast<double>(digits), exponent);
    return negative ? -number : number;
}

}  // namespace encoder_engine
