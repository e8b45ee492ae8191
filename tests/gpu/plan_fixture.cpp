#include "plan_fixture.hpp"

#include <algorithm>
#include <utility>

#include "base/formats.hpp"
#include "intent/problem.hpp"
#include "jit/service.hpp"
#include "layout/matrix_layout.hpp"
#include "runtime/launch.hpp"
#include "runtime/plan_handle.hpp"

namespace deepgemm::gpu_test {
namespace {

constexpr const char* kDevice = "cuda:0";
constexpr uint8_t kPoison = 0xFF;  // NaN in every format of floating point

size_t elements_of(const layout::MatrixLayout& layout) {
  const auto extent = layout::extent(layout);
  return extent.ok() ? static_cast<size_t>(extent->last + 1) : 0;  // of none it is -1
}

}  // namespace

DeviceArray::DeviceArray(size_t bytes, size_t offset) : bytes_(bytes), offset_(offset) {
  void* memory = nullptr;
  EXPECT_TRUE(succeeded(deepgemm_malloc(&memory, bytes + offset + 2 * kGuard)));
  memory_ = static_cast<uint8_t*>(memory);
  const std::vector<uint8_t> poison(bytes + offset + 2 * kGuard, kPoison);
  EXPECT_TRUE(succeeded(deepgemm_copy(memory_, poison.data(), poison.size())));
}

DeviceArray::DeviceArray(const std::vector<uint8_t>& content, size_t offset)
    : DeviceArray(content.size(), offset) {
  upload(content);
}

DeviceArray::DeviceArray(const std::vector<float>& content)
    : DeviceArray(content.size() * sizeof(float)) {
  EXPECT_TRUE(succeeded(deepgemm_copy(data(), content.data(), bytes_)));
}

DeviceArray::~DeviceArray() { EXPECT_TRUE(succeeded(deepgemm_free(memory_))); }

DeviceArray::DeviceArray(DeviceArray&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)),
      bytes_(other.bytes_),
      offset_(other.offset_) {}

DeviceArray& DeviceArray::operator=(DeviceArray&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(bytes_, other.bytes_);
  std::swap(offset_, other.offset_);
  return *this;
}

std::vector<uint8_t> DeviceArray::download() const {
  std::vector<uint8_t> content(bytes_);
  EXPECT_TRUE(succeeded(deepgemm_copy(content.data(), data(), bytes_)));
  return content;
}

void DeviceArray::upload(const std::vector<uint8_t>& content) {
  EXPECT_LE(content.size(), bytes_);
  EXPECT_TRUE(succeeded(deepgemm_copy(data(), content.data(), content.size())));
}

bool DeviceArray::guards_intact() const {
  if (memory_ == nullptr) return true;
  std::vector<uint8_t> all(bytes_ + offset_ + 2 * kGuard);
  EXPECT_TRUE(succeeded(deepgemm_copy(all.data(), memory_, all.size())));
  const auto is_poison = [](uint8_t byte) { return byte == kPoison; };
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(kGuard + offset_);
  return std::all_of(all.begin(), first, is_poison) &&
         std::all_of(first + static_cast<std::ptrdiff_t>(bytes_), all.end(), is_poison);
}

Product::Product(const std::string& text, size_t offset) : line(text) {
  const auto spec = intent::parse_line(text);
  EXPECT_TRUE(spec.ok()) << (spec.ok() ? "" : spec.error().message);
  if (!spec.ok()) return;
  intent = spec->intent;
  intent.device = kDevice;
  m = spec->m;
  n = spec->n;
  k = spec->k;
  plan = std::make_unique<PlanOwner>(intent, m, n, k);
  if (plan->plan.handle != nullptr) make_operands(offset);
}

void Product::make_operands(size_t offset) {
  const intent::Problem& problem = plan->plan.handle->data().problem();
  const auto make = [&](const intent::Operand& operand, uint64_t seed) {
    return DeviceArray(
        api_test::random_elements(operand.precision,
                                  static_cast<int64_t>(elements_of(operand.layout)), seed),
        offset);
  };
  a = make(problem.a, 1);
  b = make(problem.b, 2);
  if (problem.beta != 0) {
    c = make(problem.c, 3);
  } else {
    c = DeviceArray(elements_of(problem.c.layout) *
                        static_cast<size_t>(base::storage_bytes(problem.c.precision, 1)),
                    offset);
  }
  args.A = a.data();
  args.B = b.data();
  args.C = c.data();
  if (problem.epilogue.bias) {
    bias = DeviceArray(api_test::random_elements(problem.epilogue.bias_precision, n, 4));
    args.bias = bias.data();
  }
  if (problem.epilogue.residual) {
    const auto layout = runtime::residual_layout(problem, m);
    residual = DeviceArray(api_test::random_elements(problem.epilogue.residual_precision,
                                                     static_cast<int64_t>(elements_of(layout)), 5));
    args.residual = residual.data();
  }
  if (const int64_t count = runtime::scale_grid_a(problem, m).count(); count > 0) {
    scale_a = DeviceArray(api_test::random_scales(count, 6));
    args.scale_a = scale_a.floats();
  }
  if (const int64_t count = runtime::scale_grid_b(problem).count(); count > 0) {
    scale_b = DeviceArray(api_test::random_scales(count, 7));
    args.scale_b = scale_b.floats();
  }
}

deepgemm_status_t Product::launch() { return deepgemm_launch_plan_args(&plan->plan, &args); }

void Product::expect_verified() {
  SCOPED_TRACE(line + " on " + path() + " " + family());
  if (plan == nullptr || plan->plan.handle == nullptr) return;
  api_test::expect_verified(plan->plan, args);
  for (const DeviceArray* array : {&a, &b, &c, &bias, &residual, &scale_a, &scale_b}) {
    EXPECT_TRUE(array->guards_intact());
  }
}

std::string Product::family() const {
  deepgemm_plan_info_t info = {};
  return deepgemm_get_plan_info(&plan->plan, &info) == DEEPGEMM_SUCCESS ? info.family : "";
}

std::string Product::path() const {
  deepgemm_plan_info_t info = {};
  return deepgemm_get_plan_info(&plan->plan, &info) == DEEPGEMM_SUCCESS ? info.path : "";
}

void GpuPlans::SetUp() {
  const auto device = runtime::find_device(kDevice);
  if (!device.ok()) GTEST_SKIP() << device.error().message;
  jit::Source probe;
  probe.language = jit::Language::kCuda;
  const auto search = jit::process_service().compilers(jit::Language::kCuda);
  if (search->compilers.empty()) GTEST_SKIP() << "no compiler for GPU kernels";
  ASSERT_TRUE(succeeded(deepgemm_set_device(kDevice)));
}

cuda::Stream& GpuPlans::stream(size_t index) {
  while (streams_.size() <= index) {
    auto platform = cuda::process_platform();
    auto made = cuda::Stream::create(**(*platform)->device(0));
    EXPECT_TRUE(made.ok());
    streams_.push_back(std::make_unique<cuda::Stream>(std::move(*made)));
  }
  return *streams_[index];
}

}  // namespace deepgemm::gpu_test
