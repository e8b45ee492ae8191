#include "runtime/reevaluation.hpp"

#include <cstdlib>
#include <exception>
#include <limits>
#include <utility>

#include "base/log.hpp"
#include "runtime/context.hpp"
#include "schedule/tiling.hpp"

namespace deepgemm::runtime {
namespace {

// Predictions are not exact, and a change costs a cold start.
constexpr double kWorthIt = 0.9;

bool keeps_promises(const schedule::Choice& choice, const PlanData& first) {
  const contract::ErrorBound& bound = choice.certificate.bound;
  const contract::ErrorBound& promised = first.choice().certificate.bound;
  return choice.packed_b == first.choice().packed_b && bound.relative <= promised.relative &&
         bound.absolute <= promised.absolute && bound.confidence >= promised.confidence;
}

// What the report predicts for the kernel of another choice; infinite where it is refused.
double predicted_us(const schedule::Report& report, const schedule::Choice& choice) {
  for (const schedule::Candidate& candidate : report.candidates) {
    if (candidate.cost && schedule::same_kernel(choice, candidate)) return candidate.cost->us;
  }
  return std::numeric_limits<double>::infinity();
}

// The first choice also serves addresses that are not aligned, if any does.
const schedule::Choice& any_address_choice(const PlanData& first) {
  return first.fallback ? *first.fallback : first.choice();
}

// One look; what goes wrong leaves the plan as it is.
void look(PlanSlot& slot) {
  const auto load = slot.current().device->state();
  if (!load) return;
  const auto plan = plan_for_load(slot, *load);
  if (!plan.ok()) {
    base::log(DEEPGEMM_LOG_DEBUG, base::LogCategory::kPlan, "a better kernel was not made: {}",
              plan.error().message);
    return;
  }
  if (*plan == nullptr) return;
  const schedule::Choice& choice = (*plan)->choice();
  base::log(DEEPGEMM_LOG_INFO, base::LogCategory::kPlan, "{}: now {} {}, at a load of {:.2f}",
            intent::format_line((*plan)->problem()), choice.family->name,
            schedule::config_name(choice.config), load->load);
  slot.put(*plan);
}

}  // namespace

bool may_change(const PlanData& plan) {
  const intent::Problem& problem = plan.problem();
  return plan.executable != nullptr && !plan.hooked &&
         problem.contract.reproducibility == REPRODUCIBILITY_NONE &&
         !schedule::fixes_tile(problem.tiling) && plan.device->tells_load();
}

base::Result<std::shared_ptr<const PlanData>> plan_for_load(const PlanSlot& slot,
                                                            const schedule::DeviceState& load) {
  const PlanData& first = slot.first();
  const PlanData& present = slot.current();
  schedule::PlannerOptions options;
  options.hopper_opt = hopper_opt();
  options.kernel_check = first.device->kernel_check(false);
  schedule::Report report = schedule::plan(first.problem(), first.device->profile(), load, options);
  if (!report.choice || schedule::same_kernel(*report.choice, present.choice()) ||
      !keeps_promises(*report.choice, first) ||
      report.choice->cost.us > kWorthIt * predicted_us(report, present.choice())) {
    return std::shared_ptr<const PlanData>();
  }
  if (const auto known = slot.find(*report.choice)) return known;
  auto plan = std::make_shared<PlanData>();
  plan->report = std::move(report);
  plan->report.choice->notes.push_back(fmt::format(
      "chosen while the plan was used, at a load of {:.2f} by other programs", load.load));
  plan->device = first.device;
  plan->fallback = any_address_choice(first);
  DEEPGEMM_TRY_ASSIGN(
      executable, first.device->make_executable(plan->problem(), plan->choice(), &*plan->fallback));
  if (executable->workspace_bytes() > first.workspace_bytes()) {
    return std::shared_ptr<const PlanData>();
  }
  DEEPGEMM_TRY(executable->prepare_all());  // a capture may come next
  plan->executable = std::move(executable);
  return std::shared_ptr<const PlanData>(std::move(plan));
}

Reevaluator::Reevaluator() = default;

Reevaluator::~Reevaluator() { stop(); }

void Reevaluator::request(std::weak_ptr<PlanSlot> slot) {
  if (process_.forked()) return;  // the thread has not come along
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  queue_.push_back(std::move(slot));
  asked_.notify_one();
}

void Reevaluator::wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return (queue_.empty() && !busy_) || stopped_; });
}

void Reevaluator::stop() {
  if (process_.forked()) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    asked_.notify_all();
    idle_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Reevaluator::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    asked_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
    if (stopped_) return;
    const std::shared_ptr<PlanSlot> slot = queue_.front().lock();
    queue_.pop_front();
    if (slot != nullptr) {
      busy_ = true;
      lock.unlock();
      try {
        look(*slot);
      } catch (const std::exception& error) {  // no memory
        base::log(DEEPGEMM_LOG_WARNING, base::LogCategory::kPlan, "looking at a plan again: {}",
                  error.what());
      }
      slot->looked();
      lock.lock();
      busy_ = false;
    }
    if (queue_.empty()) idle_.notify_all();
  }
}

Reevaluator& process_reevaluator() {
  static Reevaluator& reevaluator = []() -> Reevaluator& {
    auto* made = new Reevaluator();  // NOLINT: never destroyed
    static Reevaluator* ending = nullptr;
    ending = made;
    std::atexit([] { ending->stop(); });
    return *made;
  }();
  return reevaluator;
}

void note_launch(const std::shared_ptr<PlanSlot>& slot, deepgemm_stream_t stream) {
  const PlanData& plan = slot->current();
  plan.device->add_work(plan.choice().cost.us);
  if (!slot->count_launch()) return;
  if (may_change(plan) && !plan.executable->is_captured(stream)) {
    process_reevaluator().request(slot);
  } else {
    slot->looked();
  }
}

}  // namespace deepgemm::runtime
