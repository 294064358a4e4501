// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/allocations.h"

#include <stdlib.h>

#include <new>

namespace {
thread_local uint64_t allocations = 0;
}

void* operator new(size_t size) {
  ++allocations;
  void* const memory = malloc(size);
  if (memory == nullptr) abort();
  return memory;
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

namespace ferry {
uint64_t Allocations() { return allocations; }
}  // namespace ferry
