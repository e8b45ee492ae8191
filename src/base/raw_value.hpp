// Enums that come from outside.
#pragma once

#include <cstring>

namespace deepgemm::base {

// The number in an enum of the C interface, whatever a caller stored there. Copied bytewise:
// reading a value without enumerator as the enum would be undefined.
template <class Enum>
int raw_value(const Enum& value) {
  static_assert(sizeof(Enum) == sizeof(int));
  int number = 0;
  std::memcpy(&number, &value, sizeof number);
  return number;
}

}  // namespace deepgemm::base
