// SPDX-License-Identifier: Apache-2.0
// The texts of kernels/, in this program.
#include <vector>

#include "compute/cuda/kernel_compiler.h"

#define FERRY_KERNEL_HEADERS(X) \
  X(blocks)                     \
  X(bytes)                      \
  X(convert)                    \
  X(elements)                   \
  X(ferry)                      \
  X(memory)                     \
  X(philox)                     \
  X(reduce)                     \
  X(types)

#define FERRY_KERNEL_HEADER(name)          \
  asm(".section .rodata\n"                 \
      ".hidden ferry_kernel_" #name        \
      "\n"                                 \
      ".global ferry_kernel_" #name        \
      "\n"                                 \
      "ferry_kernel_" #name                \
      ":\n"                                \
      ".incbin \"" FERRY_KERNELS "/" #name \
      ".cuh\"\n"                           \
      ".byte 0\n"                          \
      ".previous\n");                      \
  extern "C" const char ferry_kernel_##name[];
FERRY_KERNEL_HEADERS(FERRY_KERNEL_HEADER)
#undef FERRY_KERNEL_HEADER

namespace ferry::compute {

absl::Span<const KernelHeader> KernelHeaders() {
#define FERRY_KERNEL_HEADER(name) {#name ".cuh", ferry_kernel_##name},
  static const auto& headers =
      *new std::vector<KernelHeader>{FERRY_KERNEL_HEADERS(FERRY_KERNEL_HEADER)};
#undef FERRY_KERNEL_HEADER
  return headers;
}

}  // namespace ferry::compute
