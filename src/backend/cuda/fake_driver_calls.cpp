// The calls of the fake driver. What they refuse is what makes mistakes of the caller show.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "backend/cuda/fake_driver.hpp"

namespace deepgemm::cuda {
namespace {

constexpr uint64_t kContextHandles = 0x100;

// Of the thread; handles of contexts.
thread_local std::vector<CuContext> context_stack;

int ordinal_of(CuContext context) {
  return static_cast<int>(reinterpret_cast<uint64_t>(context) - kContextHandles);
}

void copy_text(char* to, int size, const std::string& text) {
  std::snprintf(to, static_cast<size_t>(size), "%s", text.c_str());
}

// "fake:a,b" has the kernels a and b; a real binary is taken to have every name.
bool read_image(const char* image, std::vector<std::string>& kernels) {
  if (std::strncmp(image, "\177ELF", 4) == 0) return true;
  const std::string text = image;
  if (!text.starts_with("fake:")) return false;
  for (size_t at = 5; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    kernels.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return true;
}

}  // namespace

int FakeDriver::current() const {
  if (context_stack.empty()) return -1;
  const int ordinal = ordinal_of(context_stack.back());
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) return -1;
  return devices[static_cast<size_t>(ordinal)].context == 0 ? -1 : ordinal;
}

bool FakeDriver::usable(CuStream stream) const {
  if (stream == nullptr) return true;
  const auto found = streams.find(stream);
  return found != streams.end() && found->second.ordinal == current();
}

void FakeDriver::drop(CuUserObject object, unsigned count) {
  FakeUserObject& each = user_objects.at(object);
  each.references -= count;
  if (each.references != 0) return;
  const FakeUserObject last = each;
  user_objects.erase(object);
  last.destroy(last.data);
}

CuResult FakeDriver::init(unsigned) { return CuResult::kSuccess; }

CuResult FakeDriver::driver_version(int* value) {
  *value = version;
  return CuResult::kSuccess;
}

CuResult FakeDriver::error_name(CuResult, const char** name) {
  *name = "CUDA_ERROR_OF_TEST";
  return CuResult::kSuccess;
}

CuResult FakeDriver::device_count(int* count) {
  *count = static_cast<int>(devices.size());
  return fake_answer(*count > 0, CuResult::kNoDevice);
}

CuResult FakeDriver::device_get(CuDevice* device, int ordinal) {
  *device = ordinal;
  return fake_answer(ordinal < static_cast<int>(devices.size()), CuResult::kInvalidDevice);
}

CuResult FakeDriver::device_name(char* name, int size, CuDevice device) {
  copy_text(name, size, devices[static_cast<size_t>(device)].title);
  return CuResult::kSuccess;
}

CuResult FakeDriver::device_uuid(CuUuid* uuid, CuDevice device) {
  for (size_t i = 0; i < sizeof uuid->bytes; ++i) uuid->bytes[i] = static_cast<unsigned char>(i);
  uuid->bytes[0] = static_cast<unsigned char>(0xA0 + device);
  return CuResult::kSuccess;
}

CuResult FakeDriver::device_memory(size_t* bytes, CuDevice device) {
  *bytes = devices[static_cast<size_t>(device)].memory_bytes;
  return CuResult::kSuccess;
}

CuResult FakeDriver::device_attribute(int* value, int attribute, CuDevice device) {
  const auto& attributes = devices[static_cast<size_t>(device)].attributes;
  const auto found = attributes.find(attribute);
  if (found == attributes.end()) return CuResult::kInvalidValue;
  *value = found->second;
  return CuResult::kSuccess;
}

CuResult FakeDriver::device_pci(char* text, int size, CuDevice device) {
  copy_text(text, size, "0000:" + std::to_string(10 + device) + ":00.0");
  return CuResult::kSuccess;
}

CuResult FakeDriver::primary_retain(CuContext* context, CuDevice ordinal) {
  FakeDevice& device = devices[static_cast<size_t>(ordinal)];
  ++device.retained;
  if (device.context == 0) device.context = next_context_++;
  *context = reinterpret_cast<CuContext>(kContextHandles + static_cast<uint64_t>(ordinal));
  return CuResult::kSuccess;
}

CuResult FakeDriver::primary_release(CuDevice ordinal) {
  FakeDevice& device = devices[static_cast<size_t>(ordinal)];
  if (device.retained == 0) return CuResult::kInvalidContext;
  if (--device.retained == 0) device.context = 0;
  return CuResult::kSuccess;
}

CuResult FakeDriver::context_push(CuContext context) {
  context_stack.push_back(context);
  return CuResult::kSuccess;
}

CuResult FakeDriver::context_pop(CuContext* context) {
  if (context_stack.empty()) return CuResult::kInvalidContext;
  *context = context_stack.back();
  context_stack.pop_back();
  return CuResult::kSuccess;
}

CuResult FakeDriver::context_current(CuContext* context) {
  *context = context_stack.empty() ? nullptr : context_stack.back();
  return CuResult::kSuccess;
}

CuResult FakeDriver::context_id(CuContext context, unsigned long long* id) {
  *id = devices[static_cast<size_t>(ordinal_of(context))].context;
  return fake_answer(*id != 0, CuResult::kContextDestroyed);
}

CuResult FakeDriver::context_set_limit(int limit, size_t value) {
  if (limit != kLimitPersistingL2) return CuResult::kUnsupportedLimit;
  const size_t most = static_cast<size_t>(here().attributes.at(kDevicePersistingL2));
  here().persisting_l2 = std::min(value, most);
  return CuResult::kSuccess;
}

CuResult FakeDriver::context_get_limit(size_t* value, int limit) {
  if (limit != kLimitPersistingL2) return CuResult::kUnsupportedLimit;
  *value = here().persisting_l2;
  return CuResult::kSuccess;
}

CuResult FakeDriver::stream_create(CuStream* stream, unsigned) {
  *stream = make_handle<CuStream>();
  streams[*stream] = {current(), kCaptureNone, nullptr};
  return CuResult::kSuccess;
}

CuResult FakeDriver::stream_destroy(CuStream stream) {
  return fake_answer(streams.erase(stream) == 1);
}

CuResult FakeDriver::stream_synchronize(CuStream stream) {
  if (!usable(stream)) return CuResult::kInvalidHandle;
  FakeStream* found = stream == nullptr ? nullptr : &streams.at(stream);
  if (found == nullptr || found->capture == kCaptureNone) return CuResult::kSuccess;
  found->capture = kCaptureBroken;
  return CuResult::kCaptureUnsupported;
}

CuResult FakeDriver::stream_wait_event(CuStream stream, CuEvent event, unsigned) {
  return fake_answer(usable(stream) && events.count(event) == 1);
}

CuResult FakeDriver::stream_context(CuStream stream, CuContext* context) {
  const auto found = streams.find(stream);
  if (stream != nullptr && found == streams.end()) return CuResult::kInvalidHandle;
  const int ordinal = stream == nullptr ? current() : found->second.ordinal;
  *context = reinterpret_cast<CuContext>(kContextHandles + static_cast<uint64_t>(ordinal));
  return CuResult::kSuccess;
}

CuResult FakeDriver::stream_is_capturing(CuStream stream, int* status) {
  *status = kCaptureNone;
  if (stream == nullptr) return CuResult::kSuccess;
  const auto found = streams.find(stream);
  if (found == streams.end()) return CuResult::kInvalidHandle;
  *status = found->second.capture;
  return CuResult::kSuccess;
}

CuResult FakeDriver::stream_capture_info(CuStream stream, int* status, uint64_t* id, CuGraph* graph,
                                         const CuGraphNode**, size_t*) {
  const CuResult result = stream_is_capturing(stream, status);
  if (result != CuResult::kSuccess || *status != kCaptureActive) return result;
  *graph = streams.at(stream).graph;
  *id = reinterpret_cast<uint64_t>(*graph);
  return CuResult::kSuccess;
}

CuResult FakeDriver::exchange_capture_mode(int* mode) {
  thread_local int of_thread = kCaptureGlobal;
  std::swap(of_thread, *mode);
  return CuResult::kSuccess;
}

CuResult FakeDriver::capture_begin(CuStream stream, int) {
  if (stream == nullptr || !usable(stream)) return CuResult::kCaptureUnsupported;
  FakeStream& found = streams.at(stream);
  found.capture = kCaptureActive;
  found.graph = make_handle<CuGraph>();
  graphs[found.graph] = {};
  return CuResult::kSuccess;
}

CuResult FakeDriver::capture_end(CuStream stream, CuGraph* graph) {
  FakeStream& found = streams.at(stream);
  const int was = std::exchange(found.capture, static_cast<int>(kCaptureNone));
  *graph = was == kCaptureActive ? found.graph : nullptr;
  return fake_answer(was == kCaptureActive, CuResult::kCaptureInvalidated);
}

CuResult FakeDriver::graph_instantiate(CuGraphExec* executable, CuGraph graph, unsigned long long) {
  *executable = make_handle<CuGraphExec>();
  executables[*executable] = graphs.at(graph);
  for (const CuUserObject object : graphs.at(graph)) ++user_objects.at(object).references;
  return CuResult::kSuccess;
}

CuResult FakeDriver::graph_launch(CuGraphExec executable, CuStream) {
  return fake_answer(executables.count(executable) == 1);
}

CuResult FakeDriver::graph_executable_destroy(CuGraphExec executable) {
  for (const CuUserObject object : executables.at(executable)) drop(object, 1);
  return fake_answer(executables.erase(executable) == 1);
}

CuResult FakeDriver::graph_destroy(CuGraph graph) {
  for (const CuUserObject object : graphs.at(graph)) drop(object, 1);
  return fake_answer(graphs.erase(graph) == 1);
}

CuResult FakeDriver::user_object_create(CuUserObject* object, void* data,
                                        void (*destroy)(void* data), unsigned count, unsigned) {
  *object = make_handle<CuUserObject>();
  user_objects[*object] = {data, destroy, count};
  return CuResult::kSuccess;
}

CuResult FakeDriver::user_object_release(CuUserObject object, unsigned count) {
  drop(object, count);
  return CuResult::kSuccess;
}

CuResult FakeDriver::graph_retain_object(CuGraph graph, CuUserObject object, unsigned count,
                                         unsigned flags) {
  if (flags != kGraphObjectMove) user_objects.at(object).references += count;
  graphs.at(graph).push_back(object);
  return CuResult::kSuccess;
}

CuResult FakeDriver::event_create(CuEvent* event, unsigned) {
  *event = make_handle<CuEvent>();
  events[*event] = -1;
  return CuResult::kSuccess;
}

CuResult FakeDriver::event_destroy(CuEvent event) { return fake_answer(events.erase(event) == 1); }

CuResult FakeDriver::event_record(CuEvent event, CuStream stream) {
  if (!usable(stream) || events.count(event) == 0) return CuResult::kInvalidHandle;
  events[event] = now_ += 1;
  return CuResult::kSuccess;
}

CuResult FakeDriver::event_synchronize(CuEvent event) {
  return fake_answer(events.count(event) == 1);
}

CuResult FakeDriver::event_elapsed(float* milliseconds, CuEvent start, CuEvent end) {
  if (events.count(start) == 0 || events.count(end) == 0) return CuResult::kInvalidHandle;
  if (events[start] < 0 || events[end] < 0) return CuResult::kInvalidHandle;
  *milliseconds = static_cast<float>(events[end] - events[start]);
  return CuResult::kSuccess;
}

CuResult FakeDriver::module_load(CuModule* module, const void* image, unsigned count, int* options,
                                 void** values) {
  FakeModule loaded = {here().context, {}};
  if (!read_image(static_cast<const char*>(image), loaded.kernels)) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == kJitErrorLog) copy_text(static_cast<char*>(values[i]), 64, "not a binary");
    }
    return CuResult::kInvalidImage;
  }
  *module = make_handle<CuModule>();
  modules[*module] = std::move(loaded);
  return CuResult::kSuccess;
}

CuResult FakeDriver::module_unload(CuModule module) {
  const auto found = modules.find(module);
  if (found == modules.end() || found->second.context != here().context) {
    return CuResult::kInvalidHandle;
  }
  std::erase_if(functions, [&](const auto& each) { return each.second.module == module; });
  modules.erase(found);
  return CuResult::kSuccess;
}

CuResult FakeDriver::module_function(CuFunction* function, CuModule module, const char* name) {
  const auto found = modules.find(module);
  if (found == modules.end()) return CuResult::kInvalidHandle;
  const auto& kernels = found->second.kernels;
  if (!kernels.empty() && std::find(kernels.begin(), kernels.end(), name) == kernels.end()) {
    return CuResult::kNotFound;
  }
  *function = make_handle<CuFunction>();
  functions[*function] = {module, name, kernel_attributes[name]};
  return CuResult::kSuccess;
}

CuResult FakeDriver::function_attribute(int* value, int attribute, CuFunction function) {
  if (functions.count(function) == 0) return CuResult::kInvalidHandle;
  const std::map<int, int> usual = {
      {kFunctionMaxThreads, 1024}, {kFunctionRegisters, 32}, {kFunctionBinaryVersion, 90}};
  const auto& own = functions.at(function).attributes;
  const auto found = own.find(attribute);
  const auto default_value = usual.find(attribute);
  *value = found != own.end()             ? found->second
           : default_value != usual.end() ? default_value->second
                                          : 0;
  return CuResult::kSuccess;
}

CuResult FakeDriver::function_set_attribute(CuFunction function, int attribute, int value) {
  if (functions.count(function) == 0) return CuResult::kInvalidHandle;
  if (attribute == kFunctionDynamicShared && value > here().attributes.at(kDeviceSharedPerBlock)) {
    return CuResult::kInvalidValue;
  }
  functions.at(function).attributes[attribute] = value;
  return CuResult::kSuccess;
}

CuResult FakeDriver::occupancy(int* blocks, CuFunction function, int threads, size_t) {
  *blocks = 2048 / std::max(threads, 1);
  return fake_answer(functions.count(function) == 1);
}

CuResult FakeDriver::launch(const CuLaunchConfig* config, CuFunction function, void** parameters,
                            void**) {
  const auto found = functions.find(function);
  if (found == functions.end() || !usable(config->stream)) return CuResult::kInvalidHandle;
  if (modules.at(found->second.module).context != here().context) return CuResult::kInvalidHandle;
  if (config->grid_x == 0 || config->grid_y == 0 || config->grid_z == 0 || config->block_x == 0) {
    return CuResult::kInvalidValue;
  }
  const auto granted = found->second.attributes.find(kFunctionDynamicShared);
  const int most = granted == found->second.attributes.end() ? 48 << 10 : granted->second;
  if (config->dynamic_shared_bytes > static_cast<unsigned>(most)) return CuResult::kInvalidValue;
  FakeLaunch launch = {found->second.name, *config, {}, false};
  launch.attributes.assign(config->attributes, config->attributes + config->attribute_count);
  launch.config.attributes = nullptr;
  launch.captured = config->stream != nullptr && streams.at(config->stream).capture != kCaptureNone;
  launches.push_back(launch);
  if (on_launch && !launch.captured) on_launch(launch, parameters);
  return CuResult::kSuccess;
}

}  // namespace deepgemm::cuda
