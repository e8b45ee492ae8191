#include "runtime/prepare.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <tuple>
#include <utility>

#include "runtime/plan.hpp"
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
  // The largest M of a bucket stands for it: 0, 1, 2, 4, ... and max_m where it cuts the last off.
  for (int64_t m = 0;;) {
    DEEPGEMM_TRY_ASSIGN(plan, get_plan(intent, m, shape.n, shape.k));
    kernels.insert(kernel_of(plan->choice()));
    if (m >= shape.max_m) break;
    const int64_t next = m == 0 ? 1 : schedule::m_bucket(m + 1);
    m = std::min(shape.max_m, next > m ? next : shape.max_m);
  }
  // Plans for few rows have kernels of exactly these, compiled when the plan is made.
  for (const int64_t m : {3, 5, 6, 7}) {
    if (m < shape.max_m) DEEPGEMM_TRY(get_plan(intent, m, shape.n, shape.k));
  }
  return {};
}

}  // namespace

base::Result<deepgemm_prepare_report_t> prepare(const gemm_intent_t& intent,
                                                std::span<const deepgemm_shape_t> shapes) {
  const auto start = std::chrono::steady_clock::now();
  std::set<Kernel> kernels;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const deepgemm_shape_t& shape = shapes[i];
    if (shape.max_m < 0) {
      return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                              "shapes[{}].max_m: {} is negative; sizes are 0 or more", i,
                              shape.max_m);
    }
    DEEPGEMM_TRY(prepare_shape(intent, shape, kernels));
  }
  deepgemm_prepare_report_t report = {};
  report.kernels = static_cast<int64_t>(kernels.size());
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace deepgemm::runtime
