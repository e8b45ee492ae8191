#include "jit/nvrtc.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "jit/compile_report.hpp"
#include "jit/nvrtc_library.hpp"
#include "jit/process.hpp"

namespace deepgemm::jit {
namespace {

constexpr int64_t kMemory = int64_t{512} << 20;
constexpr int kBuiltinFailure = 7;  // NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
constexpr const char* kCommonOptions[] = {"--std=c++20", "--device-as-default-execution-space"};

// A program of NVRTC; destroys it.
class Program {
 public:
  explicit Program(const NvrtcCalls& calls) : calls_(calls) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (handle_ != nullptr) calls_.destroy(&handle_);
  }

  int create(const Source& source) {
    std::vector<const char*> texts, names;
    for (const Header& header : source.headers) {
      texts.push_back(header.text.c_str());
      names.push_back(header.name.c_str());
    }
    return calls_.create(&handle_, source.text.c_str(), "kernel.cu",
                         static_cast<int>(source.headers.size()), texts.data(), names.data());
  }

  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    return calls_.compile(handle_, static_cast<int>(pointers.size()), pointers.data());
  }

  std::string log() const {
    size_t size = 0;
    if (calls_.log_size(handle_, &size) != 0 || size <= 1) return {};
    std::string text(size, '\0');
    if (calls_.log(handle_, text.data()) != 0) return {};
    text.resize(size - 1);  // its final zero
    return text;
  }

  int read_cubin(std::vector<uint8_t>& bytes) const {
    size_t size = 0;
    if (const int error = calls_.cubin_size(handle_, &size)) return error;
    bytes.resize(size);
    return calls_.cubin(handle_, reinterpret_cast<char*>(bytes.data()));
  }

 private:
  const NvrtcCalls& calls_;
  NvrtcProgram handle_ = nullptr;
};

class NvrtcCompiler : public Compiler {
 public:
  NvrtcCompiler(std::shared_ptr<const NvrtcLibrary> library, std::string failed_directory)
      : library_(std::move(library)), failed_directory_(std::move(failed_directory)) {
    identity_ = {"nvrtc",
                 fmt::format("{}.{} {}", library_->major, library_->minor, library_->build),
                 fmt::format("{}", fmt::join(kCommonOptions, " "))};
  }

  const CompilerIdentity& identity() const override { return identity_; }
  std::string location() const override { return library_->path; }
  int64_t memory_bytes() const override { return kMemory; }

  // "sm_90a" needs 90.
  bool accepts(const Source& source) const override {
    if (source.language != Language::kCuda || !source.arch.starts_with("sm_")) return false;
    const int arch = std::atoi(source.arch.c_str() + 3);
    return std::find(library_->archs.begin(), library_->archs.end(), arch) != library_->archs.end();
  }

  base::Result<Binary> compile(const Source& source) const override {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::string> options(std::begin(kCommonOptions), std::end(kCommonOptions));
    options.push_back("--gpu-architecture=" + source.arch);
    options.insert(options.end(), source.options.begin(), source.options.end());
    Program program(library_->calls);
    Binary binary;
    int error = program.create(source);
    if (error == 0) {
      error = program.compile(options);
      binary.log = program.log();
    }
    if (error == 0) error = program.read_cubin(binary.bytes);
    if (error != 0) return fail(source, options, error, binary.log);
    if (binary.bytes.empty()) return fail(source, options, 0, binary.log);
    binary.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return binary;
  }

 private:
  base::Error fail(const Source& source, const std::vector<std::string>& options, int error,
                   const std::string& log) const {
    const std::string how = error == 0
                                ? std::string("gave an empty cubin")
                                : fmt::format("answered {}", library_->calls.error_text(error));
    const std::string hint =
        error == kBuiltinFailure
            ? fmt::format("libnvrtc-builtins.so.{}.{} must lie beside the library.",
                          library_->major, library_->minor)
            : "Read the lines above; DEEPGEMM_NVRTC_PATH chooses another library.";
    return report_failure(
        {source, fmt::format("NVRTC {}.{} ({})", library_->major, library_->minor, library_->path),
         how, "nvrtcCompileProgram " + quote_command(options), log, hint},
        failed_directory_);
  }

  const std::shared_ptr<const NvrtcLibrary> library_;
  const std::string failed_directory_;
  CompilerIdentity identity_;
};

}  // namespace

CompilerSearch find_nvrtc(const CompilerSettings& settings) {
  NvrtcSearch found = find_nvrtc_libraries(settings);
  CompilerSearch search;
  search.notes = std::move(found.notes);
  for (std::shared_ptr<const NvrtcLibrary>& library : found.libraries) {
    search.compilers.push_back(
        std::make_shared<NvrtcCompiler>(std::move(library), settings.failed_directory));
  }
  return search;
}

}  // namespace deepgemm::jit
