// DeepGEMM for C++20: owners of plans, packed weights and memory over the C interface of
// deepgemm.h. Header-only; nothing here that the C functions cannot do.
//
//   const gemm_intent_t intent = {.operation = GEMM_OP_NT,
//                                 .numerical_contract = get_llm_contract()};
//   deepgemm::Plan plan(intent, M, N, K);
//   deepgemm::ScopedDeepGEMMBuffer c(M * N * sizeof(float), "output");
//   plan.launch(A, B, c.data());
//
// Failures throw deepgemm::Exception; destructors and moves do not throw. An object may be moved
// between threads; which calls may overlap is stated at the C functions.
#ifndef DEEPGEMM_DEEPGEMM_HPP
#define DEEPGEMM_DEEPGEMM_HPP

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "deepgemm/deepgemm.h"

namespace deepgemm {

// A failed call: its status and the sentence of deepgemm_last_error().
class Exception : public std::runtime_error {
 public:
  Exception(deepgemm_status_t status, const std::string& message)
      : std::runtime_error(message), status_(status) {}

  deepgemm_status_t status() const noexcept { return status_; }

 private:
  deepgemm_status_t status_;
};

// Throws unless `status`, as a C function just returned it in this thread, is DEEPGEMM_SUCCESS.
inline void check(deepgemm_status_t status) {
  if (status == DEEPGEMM_SUCCESS) return;
  throw Exception(status,
                  std::string(deepgemm_status_string(status)) + ": " + deepgemm_last_error());
}

namespace detail {

// Calls a function that follows the buffer rule of deepgemm_explain_plan: once for the size, once
// for the text. `function(buffer, capacity, needed)`.
template <class Function>
std::string read_text(Function&& function) {
  size_t needed = 0;
  if (const deepgemm_status_t status = function(nullptr, size_t{0}, &needed);
      status != DEEPGEMM_ERROR_BUFFER_TOO_SMALL) {
    check(status);
  }
  // The text may have grown in between, e.g. the leak report.
  for (;;) {
    std::vector<char> buffer(needed);
    const deepgemm_status_t status = function(buffer.data(), buffer.size(), &needed);
    if (status == DEEPGEMM_ERROR_BUFFER_TOO_SMALL) continue;
    check(status);
    return std::string(buffer.data());
  }
}

}  // namespace detail

// Owns a plan. Empty after default construction or after being moved from; an empty plan can only
// be assigned to and destroyed, everything else throws INVALID_ARGUMENT.
class Plan {
 public:
  Plan() noexcept = default;
  // Plans op(A) [M,K] * op(B) [K,N]; see deepgemm_create_plan.
  Plan(const gemm_intent_t& intent, int64_t M, int64_t N, int64_t K) {
    check(deepgemm_create_plan(&plan_, &intent, M, N, K));
  }
  ~Plan() { static_cast<void>(deepgemm_destroy_plan(&plan_)); }
  Plan(Plan&& other) noexcept : plan_(std::exchange(other.plan_, gemm_plan_t{})) {}
  Plan& operator=(Plan&& other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }

  explicit operator bool() const noexcept { return plan_.handle != nullptr; }
  // For the C functions; stays owned by this object.
  const gemm_plan_t& get() const noexcept { return plan_; }

  // Where later launches are enqueued.
  void set_stream(deepgemm_stream_t stream) noexcept { plan_.stream = stream; }

  void launch(const void* A, const void* B, void* C) const {
    check(deepgemm_launch_plan(&plan_, A, B, C));
  }
  void launch(const gemm_launch_args_t& args) const {
    check(deepgemm_launch_plan_args(&plan_, &args));
  }
  // As launch, for code that must not throw; deepgemm_last_error() has the sentence.
  deepgemm_status_t try_launch(const gemm_launch_args_t& args) const noexcept {
    return deepgemm_launch_plan_args(&plan_, &args);
  }

  deepgemm_plan_info_t info() const {
    deepgemm_plan_info_t info = {};
    check(deepgemm_get_plan_info(&plan_, &info));
    return info;
  }
  // Bytes that gemm_launch_args_t::workspace needs when the caller brings its own.
  size_t workspace_bytes() const { return info().workspace_bytes; }

  std::string explain(deepgemm_explain_format_t format = DEEPGEMM_EXPLAIN_TEXT) const {
    return detail::read_text([&](char* buffer, size_t capacity, size_t* needed) {
      return deepgemm_explain_plan(&plan_, format, buffer, capacity, needed);
    });
  }
  // Overwrites C; see deepgemm_verify_plan.
  deepgemm_verification_t verify(const gemm_launch_args_t& args) const {
    deepgemm_verification_t result = {};
    check(deepgemm_verify_plan(&plan_, &args, &result));
    return result;
  }

 private:
  gemm_plan_t plan_ = {};
};

// The report of a problem, also of one that no candidate can serve.
inline std::string explain(const gemm_intent_t& intent, int64_t M, int64_t N, int64_t K,
                           deepgemm_explain_format_t format = DEEPGEMM_EXPLAIN_TEXT) {
  return detail::read_text([&](char* buffer, size_t capacity, size_t* needed) {
    return deepgemm_explain_problem(&intent, M, N, K, format, buffer, capacity, needed);
  });
}

// Owns packed weights. Must outlive the launches that read them, not the plan they were packed
// with.
class PackedWeights {
 public:
  PackedWeights() noexcept = default;
  // Packs checkpoint tensors as `plan` reads its B; see deepgemm_pack_weights.
  PackedWeights(const Plan& plan, const deepgemm_weight_tensors_t& tensors) {
    check(deepgemm_pack_weights(&packed_, &plan.get(), &tensors));
  }
  ~PackedWeights() { static_cast<void>(deepgemm_destroy_packed_weights(&packed_)); }
  PackedWeights(PackedWeights&& other) noexcept : packed_(std::exchange(other.packed_, nullptr)) {}
  PackedWeights& operator=(PackedWeights&& other) noexcept {
    std::swap(packed_, other.packed_);
    return *this;
  }

  explicit operator bool() const noexcept { return packed_ != nullptr; }
  // What a launch takes as B.
  const deepgemm_packed_weights_t* get() const noexcept { return packed_; }

  deepgemm_packed_info_t info() const {
    deepgemm_packed_info_t info = {};
    check(deepgemm_get_packed_info(packed_, &info));
    return info;
  }
  void unpack(const deepgemm_weight_tensors_t& tensors) const {
    check(deepgemm_unpack_weights(packed_, &tensors));
  }

 private:
  deepgemm_packed_weights_t* packed_ = nullptr;
};

// Owns memory of the pool; not initialised, 256-byte aligned.
class ScopedDeepGEMMBuffer {
 public:
  ScopedDeepGEMMBuffer() noexcept = default;
  explicit ScopedDeepGEMMBuffer(size_t bytes) : bytes_(bytes) {
    check(deepgemm_malloc(&data_, bytes));
  }
  // `purpose` as in deepgemm_malloc_purpose, e.g. "q_proj_weight" or "kv_cache".
  ScopedDeepGEMMBuffer(size_t bytes, const char* purpose) : bytes_(bytes) {
    check(deepgemm_malloc_purpose(&data_, bytes, purpose));
  }
  ~ScopedDeepGEMMBuffer() { static_cast<void>(deepgemm_free(data_)); }
  ScopedDeepGEMMBuffer(ScopedDeepGEMMBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ScopedDeepGEMMBuffer& operator=(ScopedDeepGEMMBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void* data() noexcept { return data_; }
  const void* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }

  // The memory as elements of T; size<T>() of them fit.
  template <class T>
  T* as() noexcept {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* as() const noexcept {
    return static_cast<const T*>(data_);
  }
  template <class T>
  size_t size() const noexcept {
    return bytes_ / sizeof(T);
  }

  // Gives the memory up: the caller frees it with deepgemm_free.
  void* release() noexcept {
    bytes_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace deepgemm

using deepgemm::ScopedDeepGEMMBuffer;

#endif  // DEEPGEMM_DEEPGEMM_HPP
