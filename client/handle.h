// SPDX-License-Identifier: Apache-2.0
// What the application holds: a session, an arena, a batch, a status and so on. A word before each
// of them says what it is, and that it lives; the memory of one that was freed serves later ones of
// its kind only, and not soon, so that a use of a handle after its end is told instead of carried
// out. A look at the word is one load, without a lock, and the lock of the memory is held across
// fork(): both are good in a forked child too, which is told with a status. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ferry::client {

// The memory of one kind of handle. Never given back: there is as much as lived at once, and
// kResting more.
class HandleMemory {
 public:
  static constexpr size_t kResting = 64;  // freed ones that wait before they are used again
  static constexpr size_t kHead = 16;     // bytes before a handle; the word is the first 8

  static void* Take(uint64_t word, size_t bytes);
  static void Return(uint64_t word, void* handle);
};

// Base of what the application holds as a `T*`; `kWord` is that kind's alone.
template <uint64_t kWord>
struct Handle {
  static void* operator new(size_t bytes) { return HandleMemory::Take(kWord, bytes); }
  static void operator delete(void* handle) { HandleMemory::Return(kWord, handle); }

  // Of any address that a handle of whichever kind is, or was, at.
  static bool Lives(const void* handle) {
    const char* const word = static_cast<const char*>(handle) - HandleMemory::kHead;
    return reinterpret_cast<const std::atomic<uint64_t>*>(word)->load(std::memory_order_relaxed) ==
           kWord;
  }
};

// Whether it can be used: of a handle that it lives, of other pointers that they are not null.
template <typename T>
bool Usable(const T* argument) {
  if (argument == nullptr) return false;
  if constexpr (requires { T::Lives(argument); }) return T::Lives(argument);
  return true;
}
inline bool Usable(const void* argument) { return argument != nullptr; }
template <typename Result, typename... Arguments>
bool Usable(Result (*argument)(Arguments...)) {
  return argument != nullptr;
}

// Null if it can be used and is the session's; else why not.
template <typename Session, typename T>
const char* WhyNotOf(const Session* session, const T* handle) {
  if (handle == nullptr) return "is a null pointer";
  if (!Usable(handle)) return "was freed";
  return handle->session.get() == session ? nullptr : "is of another session";
}

}  // namespace ferry::client
