// Runs a fuzz target without libFuzzer: on given files, then on random inputs until time is up.
//
//   fuzz_wordpiece_standalone [--seconds N] [--seed S] [FILE or folder]...
//
// Files serve as seeds for mutation as well. An input that fails is written to ./crash-<number>.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "text/text_view.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// There in sanitizer builds only.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using bytes = std::vector<uint8_t>;
constexpr size_t kMaxSize = 8000;

bytes current;
uint64_t seed = 1;
uint64_t executions = 0;

void keep_input() {
    char name[64];
    std::snprintf(name, sizeof name, "crash-%llu", static_cast<unsigned long long>(executions));
    std::ofstream(name, std::ios::binary)
        .write(reinterpret_cast<const char*>(current.data()),
               static_cast<std::streamsize>(current.size()));
    std::fprintf(stderr, "input %s of %zu bytes, seed %llu, execution %llu\n", name, current.size(),
                 static_cast<unsigned long long>(seed), static_cast<unsigned long long>(executions));
}

void on_abort(int) {
    keep_input();
    std::_Exit(1);
}

void run(bytes input) {
    current = std::move(input);
    ++executions;
    LLVMFuzzerTestOneInput(current.data(), current.size());
}

bytes read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return bytes(std::istreambuf_iterator<char>(file), {});
}

// Random code points, often such as tokenizers treat specially.
bytes random_input(std::mt19937_64& random) {
    static const std::u32string often =
        U"  \t\nabelowr.,-'[M]\U000000E9\U00000301\U00000323\U00004E2D\U0000D55C\U00001D165"
        U"\U000000AD\U0000FFFD\U00000130\U00001E9E\U000003A3\U00003042\U0001F600\U00002581\U00000000"
        // Parts of clusters of characters.
        U"\U0000200B\U0000200C\U0000200D\U0000FE0F\U0001F3FB\U0001F1E6\U00001100\U00001161\U000011A8"
        U"\U0000AC00\U00000915\U0000094D\U00000600\U00000001\U0000FB01\U0000FDFA\U00003000\U0000FF9E";
    bytes out(3 + random() % 4);
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random());
    const bool plain = random() % 2 == 0;
    // Long enough, now and then, to fill more than a chunk of words.
    const uint64_t most = random() % 12 == 0 ? 4000 : 300;
    for (uint64_t i = random() % most; i > 0; --i) {
        uint32_t code = often[random() % often.size()];
        if (plain) code = random() % 6 == 0 ? ' ' : 'a' + static_cast<uint32_t>(random() % 26);
        if (random() % 24 == 0) code = static_cast<uint32_t>(random() % 0x110000);
        uint8_t utf8[4];
        const int size = encoder_engine::write_utf8(code, utf8);
        out.insert(out.end(), utf8, utf8 + size);
    }
    return out;
}

bytes mutate(const std::vector<bytes>& seeds, std::mt19937_64& random) {
    bytes out = seeds[random() % seeds.size()];
    for (uint64_t i = 1 + random() % 4; i > 0; --i) {
        const size_t at = out.empty() ? 0 : random() % out.size();
        const size_t count = std::min<size_t>(1 + random() % 16, out.size() - at);
        const auto place = out.begin() + static_cast<std::ptrdiff_t>(at);
        const bytes& other = seeds[random() % seeds.size()];
        switch (random() % 5) {
            case 0:
                if (!out.empty()) *place = static_cast<uint8_t>(random());
                break;
            case 1: out.erase(place, place + static_cast<std::ptrdiff_t>(count)); break;
            case 2: {
                const bytes copy(place, place + static_cast<std::ptrdiff_t>(count));
                for (uint64_t times = random() % 40; times > 0 && out.size() < kMaxSize; --times) {
                    out.insert(out.begin() + static_cast<std::ptrdiff_t>(at), copy.begin(), copy.end());
                }
                break;
            }
            case 3:
                if (!other.empty()) {
                    const size_t from = random() % other.size();
                    out.insert(place, other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
                }
                break;
            default: {
                const bytes more = random_input(random);
                out.insert(place, more.begin() + 3, more.end());
            }
        }
        if (out.size() > kMaxSize) out.resize(kMaxSize);
    }
    return out;
}

int usage() {
    std::fprintf(stderr, "usage: [--seconds N] [--seed S] [FILE or folder]...\n");
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    double seconds = 10;
    std::vector<bytes> seeds;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        if (argument.rfind("--", 0) == 0) {
            if (i + 1 == argc || (argument != "--seconds" && argument != "--seed")) return usage();
            char* end = nullptr;
            const char* value = argv[++i];
            if (argument == "--seconds") seconds = std::strtod(value, &end);
            else seed = std::strtoull(value, &end, 10);
            if (end == value || *end != '\0') return usage();
        } else if (std::filesystem::is_directory(argument)) {
            for (const auto& entry : std::filesystem::directory_iterator(argument)) {
                seeds.push_back(read_file(entry.path()));
            }
        } else if (std::filesystem::is_regular_file(argument)) {
            seeds.push_back(read_file(argument));
        } else {
            std::fprintf(stderr, "%s does not exist\n", argument.c_str());
            return 2;
        }
    }
    std::signal(SIGABRT, on_abort);
    if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(keep_input);
    std::printf("seed %llu, %zu files\n", static_cast<unsigned long long>(seed), seeds.size());
    std::fflush(stdout);
    for (const bytes& input : seeds) run(input);
    std::mt19937_64 random(seed);
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (std::chrono::steady_clock::now() < end) {
        run(seeds.empty() || random() % 3 == 0 ? random_input(random) : mutate(seeds, random));
    }
    std::printf("%llu executions, nothing found\n", static_cast<unsigned long long>(executions));
    return 0;
}
