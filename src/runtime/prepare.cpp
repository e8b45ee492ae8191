#include "runtime/prepare.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "jit/service.hpp"
#include "runtime/kernel_sources.hpp"
#include "runtime/plan.hpp"
#include "runtime/planned_rows.hpp"
#include "schedule/planner.hpp"

namespace deepgemm::runtime {
namespace {

// What makes two choices the same kernel.
auto kernel_of(const schedule::Choice& choice) {
  const schedule::KernelConfig& c = choice.config;
  return std::tuple(choice.path, choice.family,
                    std::array{c.block_m, c.block_n, c.block_k, c.warp_m, c.warp_n, c.warp_k,
                               c.stages, c.split_k, c.cluster});
}
using Kernel = decltype(kernel_of(std::declval<const schedule::Choice&>()));

base::Result<void> prepare_shape(const gemm_intent_t& intent, const deepgemm_shape_t& shape,
                                 std::set<Kernel>& kernels) {
  for (const int64_t m : planned_rows(shape.max_m)) {
    DEEPGEMM_TRY_ASSIGN(plan, get_plan(intent, m, shape.n, shape.k));
    if (plan->executable != nullptr) DEEPGEMM_TRY(plan->executable->prepare_all());
    kernels.insert(kernel_of(plan->choice()));
  }
  return {};
}

base::Result<void> check_shape(const deepgemm_shape_t& shape, size_t index) {
  if (shape.max_m >= 0) return {};
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                          "shapes[{}].max_m: {} is negative; sizes are 0 or more", index,
                          shape.max_m);
}

}  // namespace

std::vector<int64_t> planned_rows(int64_t max_m) {
  std::vector<int64_t> rows = {0};
  while (rows.back() < max_m) {
    rows.push_back(std::min(max_m, rows.back() == 0 ? 1 : schedule::m_bucket(rows.back() + 1)));
  }
  for (const int64_t m : {3, 5, 6, 7}) {
    if (m < max_m) rows.push_back(m);
  }
  return rows;
}

base::Result<std::vector<jit::Source>> kernel_sources(const gemm_intent_t& intent,
                                                      const deepgemm_shape_t& shape,
                                                      const std::string& device_name) {
  DEEPGEMM_TRY(check_shape(shape, 0));
  DEEPGEMM_TRY_ASSIGN(device, find_device(device_name));
  gemm_intent_t there = intent;
  there.device = device_name.c_str();
  std::vector<jit::Source> all;
  std::set<std::string> seen;
  for (const int64_t m : planned_rows(shape.max_m)) {
    DEEPGEMM_TRY_ASSIGN(report, plan_report(there, m, shape.n, shape.k));
    if (!report.choice) return *report.failure;
    const auto fallback = fallback_choice(there, report, *device);
    for (const auto& choice : {report.choice, fallback}) {
      if (!choice) continue;
      DEEPGEMM_TRY_ASSIGN(sources, device->sources(report.problem, *choice));
      for (jit::Source& source : sources) {
        if (seen.insert(source.arch + source.text).second) all.push_back(std::move(source));
      }
    }
  }
  return all;
}

base::Result<deepgemm_prepare_report_t> prepare(const gemm_intent_t& intent,
                                                std::span<const deepgemm_shape_t> shapes) {
  const auto start = std::chrono::steady_clock::now();
  const uint64_t compiled_before = jit::process_service().counters().compiles;
  std::set<Kernel> kernels;
  for (size_t i = 0; i < shapes.size(); ++i) {
    DEEPGEMM_TRY(check_shape(shapes[i], i));
    DEEPGEMM_TRY(prepare_shape(intent, shapes[i], kernels));
  }
  deepgemm_prepare_report_t report = {};
  report.kernels = static_cast<int64_t>(kernels.size());
  report.compiled =
      static_cast<int64_t>(jit::process_service().counters().compiles - compiled_before);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace deepgemm::runtime
