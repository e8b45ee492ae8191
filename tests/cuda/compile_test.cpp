// Every kernel compiles for every architecture, without spilling a register. Needs NVRTC and no
// GPU; without NVRTC, or where it does not know an architecture, the test is skipped and says so.

#include <gtest/gtest.h>

#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <regex>
#include <set>
#include <thread>

#include "jit/nvcc.hpp"
#include "jit/nvrtc.hpp"
#include "kernel_cases.hpp"

namespace deepgemm::cuda {
namespace {

struct Compiled {
  const KernelCase* one = nullptr;
  int registers = -1;
  int spilled_bytes = -1;
  int shared_bytes = 0;
  double seconds = 0;
  std::string failure;
};

// What ptxas -v says: "Used 125 registers", "16 bytes spill stores, 12 bytes spill loads".
int number_after(const std::string& log, const char* pattern) {
  std::smatch match;
  return std::regex_search(log, match, std::regex(pattern)) ? std::stoi(match[1]) : -1;
}

// Of the calling thread: what a compile costs, also beside others.
double processor_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

void compile(const jit::Compiler& compiler, jit::Source source, Compiled& to) {
  source.options.push_back("--ptxas-options=-v");
  const double begin = processor_seconds();
  const auto binary = compiler.compile(source);
  to.seconds = processor_seconds() - begin;
  if (!binary.ok()) {
    to.failure = binary.error().message;
    return;
  }
  to.registers = number_after(binary->log, "Used ([0-9]+) registers");
  to.spilled_bytes = number_after(binary->log, "([0-9]+) bytes spill stores");
}

class CompileKernels : public testing::TestWithParam<const char*> {
 protected:
  // A compiler that knows the architecture, or null with the reason. The one of the environment
  // comes first; DEEPGEMM_TEST_NVRTC_12 names one for what NVRTC 13 no longer knows.
  std::shared_ptr<const jit::Compiler> find_compiler(std::string& why) {
    const auto settings = jit::compiler_settings_from_environment("");
    auto older = settings;
    const char* const named = std::getenv("DEEPGEMM_TEST_NVRTC_12");
    older.nvrtc_path = named == nullptr ? "" : named;
    jit::Source probe;
    probe.language = jit::Language::kCuda;
    probe.arch = GetParam();
    for (const jit::CompilerSettings& each : {settings, older}) {
      for (const auto& compiler : jit::find_nvrtc(each).compilers) {
        if (compiler->accepts(probe)) return compiler;
        why += compiler->location() + " does not know " + probe.arch + "; ";
      }
    }
    if (why.empty()) why = "no NVRTC was found: set DEEPGEMM_NVRTC_PATH";
    return nullptr;
  }
};

// Dynamic shared memory of a block: CUDA C++ Programming Guide, "Technical Specifications per
// Compute Capability".
int shared_limit(const std::string& arch) {
  if (arch == "sm_70") return 96 << 10;
  if (arch == "sm_75") return 64 << 10;
  if (arch == "sm_80") return 163 << 10;
  if (arch == "sm_90a" || arch == "sm_100a") return 227 << 10;
  return 99 << 10;
}

TEST_P(CompileKernels, WithoutSpilling) {
  std::string why;
  const auto compiler = find_compiler(why);
  if (compiler == nullptr) GTEST_SKIP() << why;
  const std::vector<KernelCase> cases = kernel_cases();
  std::vector<Compiled> results(cases.size());
  std::vector<jit::Source> sources(cases.size());
  std::set<std::string> refused;
  for (size_t i = 0; i < cases.size(); ++i) {
    const intent::Problem problem = problem_of(cases[i], 4096, 4096, 4096);
    const auto spec = spec_of(cases[i], problem, GetParam());
    if (!spec.ok()) {
      EXPECT_EQ(spec.error().code, DEEPGEMM_ERROR_UNSUPPORTED) << cases[i].name();
      refused.insert(spec.error().message);
      continue;
    }
    const auto shape = launch_shape(*spec, problem, 4096, 1);
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    if (shape->shared_bytes > shared_limit(GetParam())) {
      refused.insert(cases[i].name() + " needs more shared memory");
      continue;
    }
    results[i] = {&cases[i], -1, -1, shape->shared_bytes, 0, ""};
    sources[i] = kernel_source(*spec);
  }
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < cases.size(); i = next++) {
      if (results[i].one != nullptr) compile(*compiler, sources[i], results[i]);
    }
  };
  std::thread second(work);
  work();
  second.join();

  std::printf("%s, %s\n  regs spilled  shared     ms  kernel\n", GetParam(),
              compiler->location().c_str());
  int built = 0;
  double total = 0, slowest = 0;
  for (const Compiled& result : results) {
    if (result.one == nullptr) continue;
    const std::string name = result.one->name();
    EXPECT_EQ(result.failure, "") << name;
    EXPECT_GT(result.registers, 0) << name;
    EXPECT_EQ(result.spilled_bytes, 0) << name;
    std::printf("  %4d %7d %7d %6.0f  %s\n", result.registers, result.spilled_bytes,
                result.shared_bytes, result.seconds * 1e3, name.c_str());
    ++built;
    total += result.seconds;
    slowest = std::max(slowest, result.seconds);
  }
  EXPECT_GT(built, 0);
  std::printf("  %d kernels, %.0f ms on average, %.0f ms the slowest; refused:\n", built,
              total / std::max(built, 1) * 1e3, slowest * 1e3);
  for (const std::string& reason : refused) std::printf("    %s\n", reason.c_str());
}

INSTANTIATE_TEST_SUITE_P(Architectures, CompileKernels,
                         testing::Values("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a",
                                         "sm_100a", "sm_120a"),
                         [](const auto& test) { return std::string(test.param); });

// The alternative for machines with a toolkit but without NVRTC: one kernel of each family.
TEST(Nvcc, CompilesKernelsToo) {
  const auto search = jit::find_nvcc(jit::compiler_settings_from_environment(""));
  if (search.compilers.empty()) GTEST_SKIP() << search.notes.at(0);
  std::set<std::string> families;
  for (const KernelCase& one : kernel_cases()) {
    if (!families.insert(one.family).second) continue;
    const auto spec = spec_of(one, problem_of(one, 4096, 4096, 4096), "sm_80");
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    Compiled result;
    compile(*search.compilers[0], kernel_source(*spec), result);
    EXPECT_EQ(result.failure, "") << one.name();
    EXPECT_EQ(result.spilled_bytes, 0) << one.name();
  }
}

// Volta is served by NVRTC 12 only, and by simt only.
TEST(KernelSpecs, EveryFamilyHasKernelsOnEveryArchitectureItNames) {
  for (const char* arch : {"sm_70", "sm_75", "sm_80", "sm_89", "sm_90a", "sm_120a"}) {
    std::set<std::pair<std::string, contract::PathId>> built;
    for (const KernelCase& one : kernel_cases()) {
      if (spec_of(one, problem_of(one, 64, 64, 256), arch).ok()) {
        built.insert({one.family, one.path});
      }
    }
    for (const auto path :
         {contract::PathId::kFp64, contract::PathId::kFp32Acc64, contract::PathId::kFp32,
          contract::PathId::kFp16, contract::PathId::kBf16, contract::PathId::kFp8,
          contract::PathId::kInt8, contract::PathId::kW8A16}) {
      EXPECT_TRUE(built.contains({"simt", path})) << arch << " " << contract::path_info(path).name;
    }
    const int sm = std::atoi(arch + 3);
    EXPECT_EQ(built.contains({"sm80", contract::PathId::kFp16}), sm >= 75) << arch;
    EXPECT_EQ(built.contains({"sm80", contract::PathId::kTf32x3}), sm >= 80) << arch;
    EXPECT_EQ(built.contains({"sm80", contract::PathId::kFp8}), sm >= 89) << arch;
  }
}

TEST(KernelSpecs, EqualRequestsGiveEqualSourcesWithAKnownEntry) {
  const KernelCase one = kernel_cases().front();
  const auto spec = spec_of(one, problem_of(one, 100, 100, 100), "sm_80");
  const auto other = spec_of(one, problem_of(one, 200, 100, 100), "sm_80");
  ASSERT_TRUE(spec.ok() && other.ok());
  EXPECT_EQ(kernel_source(*spec).text, kernel_source(*other).text) << "M is a run-time value";
  EXPECT_EQ(kernel_source(*spec).symbols, std::vector<std::string>{"deepgemm_kernel_simt"});
}

}  // namespace
}  // namespace deepgemm::cuda
