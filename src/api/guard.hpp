// What every C function does around its call into the runtime.
#pragma once

#include <cstddef>
#include <exception>
#include <new>
#include <string>
#include <utility>

#include "base/raw_value.hpp"
#include "base/result.hpp"
#include "deepgemm/types.h"

namespace deepgemm::api {

// Stores the sentence for deepgemm_last_error() of this thread and returns the code. Never
// allocates.
deepgemm_status_t fail(deepgemm_status_t code, const char* message) noexcept;
// Empty before the first failure of this thread.
const char* last_error() noexcept;

// Runs `body`, which returns base::Result<void>, and turns its error or whatever it throws into a
// status. Nothing leaves a C function but through here.
template <class Body>
deepgemm_status_t guard(Body&& body) noexcept {
  try {
    const base::Result<void> result = std::forward<Body>(body)();
    if (result.ok()) return DEEPGEMM_SUCCESS;
    return fail(result.error().code, result.error().message.c_str());
  } catch (const std::bad_alloc&) {
    return fail(DEEPGEMM_ERROR_OUT_OF_MEMORY,
                "host memory is exhausted; free memory and try again");
  } catch (const std::exception& error) {
    return fail(DEEPGEMM_ERROR_INTERNAL, error.what());
  } catch (...) {
    return fail(DEEPGEMM_ERROR_INTERNAL, "an exception of unknown type reached the C interface");
  }
}

// INVALID_ARGUMENT naming `name` when `pointer` is null.
base::Result<void> require(const void* pointer, const char* name);

// INVALID_ARGUMENT naming `name` unless the value is one of 0 ... last.
template <class Enum>
base::Result<void> require_known(const Enum& value, Enum last, const char* name) {
  const int number = base::raw_value(value);
  if (number >= 0 && number <= static_cast<int>(last)) return {};
  return base::make_error(DEEPGEMM_ERROR_INVALID_ARGUMENT,
                          "{}: {} is no value of its enumeration; give 0 ... {}", name, number,
                          static_cast<int>(last));
}

// The buffer rule of deepgemm_explain_plan.
base::Result<void> copy_text(const std::string& text, char* buffer, size_t capacity,
                             size_t* needed);

}  // namespace deepgemm::api
