// libcuda, opened at run time: a table of its calls, and its answers as errors of ours.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "backend/cuda/driver_types.hpp"
#include "backend/cuda/fork_watch.hpp"
#include "base/result.hpp"

namespace deepgemm::cuda {

// The oldest driver that is served, as cuDriverGetVersion counts: CUDA 12.0. Kernels come from
// NVRTC 12 or 13, whose binaries older drivers need not take ("CUDA minor version compatibility").
inline constexpr int kOldestDriver = 12000;

// All calls are there in a driver that load_driver gave. A plain value, so that tests can give one
// of their own.
struct Driver {
#define DEEPGEMM_CUDA_CALL(member, symbol, parameters) CuResult(*member) parameters = nullptr;
#include "backend/cuda/driver_api.inc"
#undef DEEPGEMM_CUDA_CALL
  std::string path;   // the library
  int version = 0;    // 12040: CUDA 12.4
  ForkWatch process;  // that the driver was loaded in; it works in no other
};

// Address of an exported function, null when there is none.
using FindSymbol = std::function<void*(const char* name)>;

// Fills the table, initialises the driver and asks for its version. `visible_devices` is
// CUDA_VISIBLE_DEVICES, for the message. DEVICE, naming the reason and the next step: a driver that
// is too old, no device, all devices hidden, not permitted, and what else cuInit says.
base::Result<Driver> load_driver(const FindSymbol& find, const std::string& path,
                                 const std::optional<std::string>& visible_devices);

// The driver of this process, opened at the first call and kept; an error is kept too, for
// libcuda decides once. DEVICE as above, when there is no libcuda, and in a child forked while it
// was being opened. Any thread.
base::Result<const Driver*> process_driver();

// Of what an answer speaks.
enum class ResultKind {
  kProgram,      // the arguments: a defect of ours unless the caller gave them
  kSticky,       // work on the device has failed; the context is lost
  kMemory,       // memory is exhausted
  kSetup,        // the machine
  kImage,        // the kernel's binary
  kUnsupported,  // the device or driver lacks something
  kCapture,      // a stream that is being captured
  kOther,        // a number that is not in driver_results.inc
};
ResultKind result_kind(CuResult result);
// "CUDA_ERROR_ILLEGAL_ADDRESS (700): a kernel touched memory that is not mapped". The driver names
// numbers that are not in driver_results.inc.
std::string describe(const Driver& driver, CuResult result);

// When a sticky fault shows. kBefore: nothing of the present call runs on the device yet, so that
// the fault is that of earlier work, whoever launched it. kDuring: it may be of this call.
enum class FaultTime { kBefore, kDuring };

// `action` in the words of a sentence's subject: "Launching kernel 'x' on cuda:0". Codes: sticky
// and setup DEVICE, memory OUT_OF_MEMORY, image COMPILE_FAILED, unsupported UNSUPPORTED, capture
// INVALID_ARGUMENT, otherwise INTERNAL.
base::Error driver_error(const Driver& driver, CuResult result, const std::string& action,
                         FaultTime time = FaultTime::kBefore);

// Success or driver_error; `action` is evaluated after a failure only.
#define DEEPGEMM_CUDA_TRY(driver, result, action)                        \
  do {                                                                   \
    if (const CuResult try_answer = (result);                            \
        try_answer != ::deepgemm::cuda::CuResult::kSuccess) {            \
      return ::deepgemm::cuda::driver_error(driver, try_answer, action); \
    }                                                                    \
  } while (false)

}  // namespace deepgemm::cuda
