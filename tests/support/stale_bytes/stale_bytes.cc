// SPDX-License-Identifier: Apache-2.0
// Preloaded into a client (LD_PRELOAD): what it writes into an arena with ferry_arena_write is
// where transfers find it only as long as each byte is written once. From when it begins anew it
// writes and reads a copy beside. So all its transfers go well, and move the bytes of before: as if
// each but the first had done nothing.
#include <dlfcn.h>

#include <cstring>
#include <map>
#include <vector>

#include "ferry/ferry.h"

namespace {

// Of one thread, as whoever it is preloaded into.
struct Copy {
  uint64_t written = 0;  // up to here, once
  std::vector<char> beside;
};
std::map<const ferry_arena*, Copy> copies;

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

void ferry_arena_free(ferry_arena* arena) {
  copies.erase(arena);
  Real<decltype(&ferry_arena_free)>("ferry_arena_free")(arena);
}

ferry_status* ferry_arena_write(ferry_arena* arena, uint64_t offset, const void* bytes,
                                uint64_t count) {
  Copy& copy = copies[arena];
  if (copy.beside.empty() && offset >= copy.written) {
    copy.written = offset + count;
    return Real<decltype(&ferry_arena_write)>("ferry_arena_write")(arena, offset, bytes, count);
  }
  copy.beside.resize(ferry_arena_bytes(arena));
  std::memcpy(copy.beside.data() + offset, bytes, count);
  return nullptr;
}

ferry_status* ferry_arena_read(const ferry_arena* arena, uint64_t offset, void* bytes,
                               uint64_t count) {
  const Copy& copy = copies[arena];
  if (copy.beside.empty()) {
    return Real<decltype(&ferry_arena_read)>("ferry_arena_read")(arena, offset, bytes, count);
  }
  std::memcpy(bytes, copy.beside.data() + offset, count);
  return nullptr;
}
}
