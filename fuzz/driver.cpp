// Drives LLVMFuzzerTestOneInput where libFuzzer does not exist: mutates the inputs of a corpus
// until the time is over. It knows nothing of coverage and so finds less; the options are
// libFuzzer's:
//
//   <name>_fuzz [-max_total_time=<seconds>] [-runs=<count>] [-seed=<number>] [<file or folder>...]
//
// Every given file is run as it is first. The input of a failure is written to crash-<name>.
#include <algorithm>
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

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kMaxInput = 1 << 16;

std::string crash_path;
const Input* running = nullptr;

void save_running_input() {
  if (running == nullptr) return;
  std::ofstream(crash_path, std::ios::binary)
      .write(reinterpret_cast<const char*>(running->data()),
             static_cast<std::streamsize>(running->size()));
  std::fprintf(stderr, "input of %zu bytes written to %s\n", running->size(), crash_path.c_str());
  running = nullptr;
}

void run(const Input& input) {
  running = &input;
  LLVMFuzzerTestOneInput(input.data(), input.size());
  running = nullptr;
}

class Mutator {
 public:
  Mutator(uint64_t seed, const std::vector<Input>& corpus) : random_(seed), corpus_(corpus) {}

  Input next() {
    Input input = corpus_[below(corpus_.size())];
    for (size_t count = 1 + below(6); count > 0; --count) mutate(input);
    if (input.size() > kMaxInput) input.resize(kMaxInput);
    return input;
  }

 private:
  size_t below(size_t count) { return random_() % count; }

  void mutate(Input& input) {
    if (input.empty()) input.push_back(0);
    switch (below(7)) {
      case 0:
        input[below(input.size())] ^= static_cast<uint8_t>(1U << below(8));
        return;
      case 1:
        input[below(input.size())] = static_cast<uint8_t>(below(256));
        return;
      case 2:
        erase(input);
        return;
      case 3:
        insert(input, part_of(input));
        return;
      case 4:
        insert(input, part_of(corpus_[below(corpus_.size())]));
        return;
      case 5:
        overwrite_number(input);
        return;
      default:
        insert(input, digits());
    }
  }

  Input part_of(const Input& source) {
    if (source.empty()) return {};
    const size_t begin = below(source.size());
    const size_t length = 1 + below(std::min<size_t>(source.size() - begin, 32));
    const auto first = source.begin() + static_cast<std::ptrdiff_t>(begin);
    return Input(first, first + static_cast<std::ptrdiff_t>(length));
  }

  void erase(Input& input) {
    const size_t begin = below(input.size());
    const size_t length = 1 + below(std::min<size_t>(input.size() - begin, 16));
    const auto first = input.begin() + static_cast<std::ptrdiff_t>(begin);
    input.erase(first, first + static_cast<std::ptrdiff_t>(length));
  }

  void insert(Input& input, const Input& part) {
    const auto at = input.begin() + static_cast<std::ptrdiff_t>(below(input.size() + 1));
    input.insert(at, part.begin(), part.end());
  }

  void overwrite_number(Input& input) {
    constexpr uint64_t kEdges[] = {0,
                                   1,
                                   127,
                                   128,
                                   255,
                                   0x7FFF,
                                   0xFFFF,
                                   0x7FFFFFFF,
                                   0xFFFFFFFF,
                                   0x7FFFFFFFFFFFFFFF,
                                   0xFFFFFFFFFFFFFFFF};
    const uint64_t edge = kEdges[below(std::size(kEdges))];
    const size_t width = std::min<size_t>(size_t{1} << below(4), input.size());
    std::memcpy(input.data() + below(input.size() - width + 1), &edge, width);
  }

  Input digits() {
    constexpr const char* kNumbers[] = {"0",      "-1",  "1e999", "9223372036854775807",
                                        "1e-320", "nan", "inf",   "18446744073709551616"};
    const char* text = kNumbers[below(std::size(kNumbers))];
    return Input(text, text + std::strlen(text));
  }

  std::mt19937_64 random_;
  const std::vector<Input>& corpus_;
};

Input read_input(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Input(std::istreambuf_iterator<char>(file), {});
}

void add_inputs(const std::filesystem::path& path, std::vector<Input>& corpus) {
  if (!std::filesystem::is_directory(path)) {
    corpus.push_back(read_input(path));
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.is_regular_file()) corpus.push_back(read_input(entry.path()));
  }
}

struct Options {
  double seconds = 10;
  uint64_t runs = UINT64_MAX;
  uint64_t seed = 1;
  std::vector<Input> corpus;
};

Options parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const std::string value = text.substr(text.find('=') + 1);
    if (text.starts_with("-max_total_time=")) {
      options.seconds = std::strtod(value.c_str(), nullptr);
    } else if (text.starts_with("-runs=")) {
      options.runs = std::strtoull(value.c_str(), nullptr, 10);
    } else if (text.starts_with("-seed=")) {
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (!text.starts_with("-")) {
      add_inputs(text, options.corpus);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = parse_options(argc, argv);
  crash_path = "crash-" + std::filesystem::path(argv[0]).filename().string();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_set_death_callback(save_running_input);
#endif
  std::signal(SIGABRT, [](int) { save_running_input(); });
  for (const Input& input : options.corpus) run(input);
  const size_t seeds = options.corpus.size();
  options.corpus.emplace_back();
  Mutator mutator(options.seed, options.corpus);
  const auto start = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  uint64_t count = 0;
  for (; count < options.runs && passed() < options.seconds; ++count) run(mutator.next());
  std::printf("%s: %zu seeds, %llu mutated inputs in %.1f s, no failure\n", argv[0], seeds,
              static_cast<unsigned long long>(count), passed());
  return 0;
}
