#include "gpu_fixture.hpp"

#include <algorithm>

#include "jit/nvrtc.hpp"

namespace deepgemm::cuda {

Gpu* Gpu::get(std::string& why) {
  static std::string reason;
  static const std::unique_ptr<Gpu> gpu = [] {
    auto opened = std::make_unique<Gpu>();
    return opened->open(reason) ? std::move(opened) : nullptr;
  }();
  why = reason;
  return gpu.get();
}

bool Gpu::open(std::string& why) {
  const auto platform = process_platform();
  if (!platform.ok()) return why = platform.error().message, false;
  const auto device = (*platform)->device(0);
  if (!device.ok()) return why = device.error().message, false;
  device_ = *device;
  auto stream = Stream::create(*device_);
  if (!stream.ok()) return why = stream.error().message, false;
  stream_ = std::make_unique<Stream>(std::move(*stream));
  pool_ = std::make_unique<MemoryPool>(*device_, "test", 0, 0);
  jit::Source probe;
  probe.language = jit::Language::kCuda;
  probe.arch = arch();
  for (const auto& found : jit::find_nvrtc(jit::compiler_settings_from_environment("")).compilers) {
    if (compiler_ == nullptr && found->accepts(probe)) compiler_ = found;
  }
  if (compiler_ == nullptr) why = "no NVRTC for " + arch() + ": set DEEPGEMM_NVRTC_PATH";
  return compiler_ != nullptr;
}

std::string Gpu::arch() const {
  const int sm = device_->facts().sm;
  return "sm_" + std::to_string(sm) + (sm >= 90 ? "a" : "");
}

std::vector<uint8_t> Gpu::binary(const jit::Source& source) {
  const auto binary = compiler_->compile(source);
  EXPECT_TRUE(binary.ok()) << (binary.ok() ? "" : binary.error().message);
  return binary.ok() ? binary->bytes : std::vector<uint8_t>{};
}

std::shared_ptr<const Module> Gpu::load(const jit::Source& source) {
  const std::vector<uint8_t> image = binary(source);
  if (image.empty()) return nullptr;
  auto loaded = Module::load(*device_, image, source.name);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  return loaded.ok() ? *loaded : nullptr;
}

namespace {

Kernel find(const std::shared_ptr<const Module>& module, const KernelSpec& spec, int shared_bytes) {
  if (module == nullptr) return {};
  auto found = find_kernel(module, kernel_symbol(spec), {.dynamic_shared_bytes = shared_bytes});
  EXPECT_TRUE(found.ok()) << (found.ok() ? "" : found.error().message);
  return found.ok() ? *found : Kernel{};
}

}  // namespace

Kernel Gpu::kernel(const KernelSpec& spec, int shared_bytes) {
  const jit::Source source = kernel_source(spec);
  std::shared_ptr<const Module>& module = modules_[source.text];
  if (module == nullptr) module = load(source);
  return find(module, spec, shared_bytes);
}

Kernel Gpu::own_kernel(const KernelSpec& spec, int shared_bytes) {
  return find(load(kernel_source(spec)), spec, shared_bytes);
}

void* Gpu::allocate(size_t bytes) {
  const auto memory = pool_->allocate(bytes, stream());
  EXPECT_TRUE(memory.ok()) << (memory.ok() ? "" : memory.error().message);
  return memory.ok() ? *memory : nullptr;
}

void Gpu::copy(void* to, const void* from, size_t bytes) {
  const auto copied = cuda::copy(*device_, to, from, bytes, stream());
  EXPECT_TRUE(copied.ok()) << (copied.ok() ? "" : copied.error().message);
}

bool Gpu::synchronize() {
  const auto done = stream_->synchronize();
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return done.ok();
}

bool Gpu::launch(const Kernel& kernel, const LaunchShape& shape, int64_t blocks,
                 kernel::GemmArguments arguments) {
  LaunchConfig config;
  config.grid[0] = static_cast<uint32_t>(std::clamp<int64_t>(blocks, 1, shape.items));
  config.block[0] = static_cast<uint32_t>(shape.threads);
  config.stream = stream();
  void* parameters[] = {&arguments};
  const auto launched = launch_kernel(kernel, config, parameters);
  EXPECT_TRUE(launched.ok()) << (launched.ok() ? "" : launched.error().message);
  return launched.ok();
}

double Gpu::median_ms(const Kernel& kernel, const LaunchShape& shape, int64_t blocks,
                      const kernel::GemmArguments& arguments) {
  constexpr int kRounds = 9, kLaunches = 3;
  auto begin = Event::create(*device_, Event::Time::kMeasured);
  auto end = Event::create(*device_, Event::Time::kMeasured);
  if (!begin.ok() || !end.ok()) return 0;
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {
    bool fine = begin->record(stream()).ok();
    for (int i = 0; i < kLaunches; ++i) fine = fine && launch(kernel, shape, blocks, arguments);
    fine = fine && end->record(stream()).ok();
    if (!fine || !synchronize()) return 0;
    const auto time = elapsed_ms(*device_, *begin, *end);
    if (time.ok() && round > 0) times.push_back(*time / kLaunches);  // the first warms up
  }
  if (times.empty()) return 0;
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

MirroredBuffer::MirroredBuffer(Gpu& gpu, size_t capacity)
    : gpu_(gpu), capacity_(capacity), device_(gpu.allocate(capacity + 2 * kGuard)) {}

void MirroredBuffer::reset(size_t bytes) {
  EXPECT_LE(bytes, capacity_);
  host_.assign(bytes + 2 * kGuard, 0xFF);
}

void MirroredBuffer::upload() { gpu_.copy(device_, host_.data(), host_.size()); }

void MirroredBuffer::download() { gpu_.copy(host_.data(), device_, host_.size()); }

bool MirroredBuffer::guards_intact() const {
  const auto is_guard = [](uint8_t byte) { return byte == 0xFF; };
  return std::all_of(host_.begin(), host_.begin() + kGuard, is_guard) &&
         std::all_of(host_.end() - kGuard, host_.end(), is_guard);
}

}  // namespace deepgemm::cuda
