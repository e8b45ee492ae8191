// The environment. Nothing else in the library reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.hpp"

namespace deepgemm::base {

// A variable that the library reads. Strings live as long as the library.
struct EnvVariable {
  const char* name;
  const char* type;           // "text", "path", "level", "switch", "count", "list"
  const char* default_value;  // what an unset variable means
  const char* meaning;
};

// The variables of this library, at most twelve; `deepgemm doctor` and the documentation print
// them.
std::span<const EnvVariable> env_table();

// Variables of others that the library heeds.
std::span<const EnvVariable> foreign_env_table();

// Value of a variable of either table, read anew at each call, so that a change after loading the
// library counts. An empty value is an unset one, except in CUDA_VISIBLE_DEVICES, where it means
// "no device". Names outside the tables are never set. Like getenv: not while another thread
// changes the environment.
std::optional<std::string> env(const char* name);

// The same as a whole number within [low, high]; INVALID_ARGUMENT names the variable, its value and
// the range.
Result<std::optional<int64_t>> env_integer(const char* name, int64_t low, int64_t high);

}  // namespace deepgemm::base
