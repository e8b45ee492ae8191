// "Memory" of deepgemm.h.
#include <string>

#include "api/guard.hpp"
#include "deepgemm/deepgemm.h"
#include "runtime/layouts.hpp"
#include "runtime/memory.hpp"

using deepgemm::api::copy_text;
using deepgemm::api::guard;
using deepgemm::api::require;
using deepgemm::api::require_known;
using Result = deepgemm::base::Result<void>;
namespace runtime = deepgemm::runtime;

deepgemm_status_t deepgemm_malloc(void** pointer, size_t bytes) {
  return deepgemm_malloc_purpose(pointer, bytes, "general");
}

deepgemm_status_t deepgemm_malloc_purpose(void** pointer, size_t bytes, const char* purpose) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(pointer, "pointer"));
    *pointer = nullptr;
    DEEPGEMM_TRY(require(purpose, "purpose"));
    DEEPGEMM_TRY_ASSIGN(memory, runtime::allocate(bytes, purpose, nullptr));
    *pointer = memory;
    return {};
  });
}

deepgemm_status_t deepgemm_malloc_operand(void** pointer, const gemm_intent_t* intent,
                                          deepgemm_operand_t operand, int64_t M, int64_t N,
                                          int64_t K) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(pointer, "pointer"));
    *pointer = nullptr;
    DEEPGEMM_TRY(require(intent, "intent"));
    DEEPGEMM_TRY(require_known(operand, GEMM_OPERAND_C, "operand"));
    DEEPGEMM_TRY_ASSIGN(bytes, runtime::operand_bytes(*intent, operand, M, N, K));
    const gemm_layout_t& layout = operand == GEMM_OPERAND_A   ? intent->layout_a
                                  : operand == GEMM_OPERAND_B ? intent->layout_b
                                                              : intent->layout_c;
    std::string purpose = layout.memory_space == MEM_SPACE_HOST_PINNED ? "pinned " : "";
    purpose += operand == GEMM_OPERAND_A   ? "input of A"
               : operand == GEMM_OPERAND_B ? "weights of B"
                                           : "output of C";
    DEEPGEMM_TRY_ASSIGN(memory, runtime::allocate(bytes, purpose, intent->device));
    *pointer = memory;
    return {};
  });
}

deepgemm_status_t deepgemm_free(void* pointer) {
  return guard([&] { return runtime::release(pointer); });
}

deepgemm_status_t deepgemm_copy(void* destination, const void* source, size_t bytes) {
  return guard([&]() -> Result {
    if (bytes == 0) return {};
    DEEPGEMM_TRY(require(destination, "destination"));
    DEEPGEMM_TRY(require(source, "source"));
    return runtime::copy(destination, source, bytes);
  });
}

deepgemm_status_t deepgemm_get_pool_stats(deepgemm_pool_stats_t* stats) {
  return guard([&]() -> Result {
    DEEPGEMM_TRY(require(stats, "stats"));
    DEEPGEMM_TRY_ASSIGN(counted, runtime::memory_stats());
    *stats = counted;
    return {};
  });
}

deepgemm_status_t deepgemm_get_leak_report(char* buffer, size_t capacity, size_t* needed) {
  return guard([&] { return copy_text(runtime::leak_report(), buffer, capacity, needed); });
}
