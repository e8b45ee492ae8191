// Links the shared library as C.
#include <deepgemm/deepgemm.h>
#include <stdio.h>

int main(void) {
  printf("C, shared: %s\n", deepgemm_status_string(DEEPGEMM_SUCCESS));
  return deepgemm_version() == DEEPGEMM_VERSION ? 0 : 1;
}
