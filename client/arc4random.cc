// SPDX-License-Identifier: Apache-2.0
// std::random_device of the C++ library that is linked into libferry calls this function, which the
// C library has only since 2.36. Not exported (libferry.map).
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

extern "C" uint32_t arc4random() {
  uint32_t bits;
  if (getentropy(&bits, sizeof(bits)) != 0) std::abort();
  return bits;
}
