// Result<T>: a value or an error with a status code and a sentence for the user.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <variant>

#include "deepgemm/types.h"

namespace deepgemm::base {

// What went wrong: the code that C callers get and the sentence of deepgemm_last_error().
struct Error {
  deepgemm_status_t code = DEEPGEMM_ERROR_INTERNAL;
  std::string message;
};

// Message in fmt syntax: name the argument, its value, the rule, and what to do.
template <class... Args>
[[nodiscard]] Error make_error(deepgemm_status_t code, fmt::format_string<Args...> format,
                               Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // Only when ok(); the access is checked by std::variant.
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Only when !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const { return error_; }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace deepgemm::base

// Evaluates an expression of type Result<void> (or Result<T> whose value is not needed) and returns
// its error from the enclosing function.
#define DEEPGEMM_TRY(expression)                            \
  do {                                                      \
    if (auto try_result = (expression); !try_result.ok()) { \
      return try_result.error();                            \
    }                                                       \
  } while (false)

// Declares `name` as the value of a Result<T>, or returns its error.
#define DEEPGEMM_TRY_ASSIGN(name, expression)            \
  auto name##_result = (expression);                     \
  if (!name##_result.ok()) return name##_result.error(); \
  auto& name = *name##_result
