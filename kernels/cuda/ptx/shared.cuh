// Shared memory, by 32-bit addresses within the block's window (PTX ISA: ld.shared, st.shared).
#pragma once

#include "ptx/types.cuh"

namespace deepgemm::ptx {

// Start of the dynamic shared memory of the block; a multiple of 1024.
PTX_FN u32 shared_memory() {
  extern __shared__ __align__(1024) unsigned char deepgemm_shared_memory[];
  return static_cast<u32>(__cvta_generic_to_shared(deepgemm_shared_memory));
}

template <i32 kBytes>
PTX_FN Words<kBytes> load_shared(u32 address) {
  Words<kBytes> to;
  if constexpr (kBytes == 16) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.word[0]), "=r"(to.word[1]), "=r"(to.word[2]), "=r"(to.word[3])
                 : "r"(address)
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(to.word[0]), "=r"(to.word[1])
                 : "r"(address)
                 : "memory");
  } else {
    static_assert(kBytes == 4);
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(to.word[0]) : "r"(address) : "memory");
  }
  return to;
}

template <i32 kBytes>
PTX_FN void store_shared(u32 address, const Words<kBytes>& value) {
  if constexpr (kBytes == 16) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(value.word[0]),
                 "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(value.word[0]),
                 "r"(value.word[1])
                 : "memory");
  } else {
    static_assert(kBytes == 4);
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value.word[0]) : "memory");
  }
}

}  // namespace deepgemm::ptx
