// Links the static library as C++.
#include <cstdio>
#include <deepgemm/deepgemm.hpp>

int main() {
  std::printf("C++, static: %s\n", deepgemm_status_string(DEEPGEMM_SUCCESS));
  return deepgemm_version() == DEEPGEMM_VERSION ? 0 : 1;
}
