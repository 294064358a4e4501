// SPDX-License-Identifier: Apache-2.0
// Handles: what the application holds, such as a session, an arena, a batch or a status. A word
// before each handle says what kind it is and that it lives. The memory of a freed handle serves
// only later handles of its kind, and not soon, so that the use of a freed handle is noticed
// instead of carried out. Reading the word is one load without a lock, and the memory's lock is
// held across fork(): so both work in a forked child, which is refused with a status. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ferry::client {

// The memory of one kind of handle. It is never given back: it holds as many handles as ever lived
// at once, and kResting more.
class HandleMemory {
 public:
  // Freed handles that wait before their memory is used again.
  static constexpr size_t kResting = 64;
  static constexpr size_t kHead = 16;  // bytes before a handle; the word is the first 8

  static void* Take(uint64_t word, size_t bytes);
  static void Return(uint64_t word, void* handle);
};

// Base class of a handle `T*` of the application. `kWord` names the kind and is unique to it.
template <uint64_t kWord>
struct Handle {
  static void* operator new(size_t bytes) { return HandleMemory::Take(kWord, bytes); }
  static void operator delete(void* handle) { HandleMemory::Return(kWord, handle); }

  // True if a handle of this kind lives at `handle`, where a handle of some kind must be or have
  // been.
  static bool Lives(const void* handle) {
    const char* const word = static_cast<const char*>(handle) - HandleMemory::kHead;
    return reinterpret_cast<const std::atomic<uint64_t>*>(word)->load(std::memory_order_relaxed) ==
           kWord;
  }
};

// Whether an argument can be used: a handle if it lives, another pointer if it is not null.
template <typename T>
bool Usable(const T* argument) {
  // Of a handle that is only declared here nobody would see that it has a Lives.
  static_assert(sizeof(T) > 0, "include the header that defines the handle");
  if (argument == nullptr) return false;
  if constexpr (requires { T::Lives(argument); }) return T::Lives(argument);
  return true;
}
inline bool Usable(const void* argument) { return argument != nullptr; }
template <typename Result, typename... Arguments>
bool Usable(Result (*argument)(Arguments...)) {
  return argument != nullptr;
}

// Null if the handle can be used and is of this session; else why not.
template <typename Session, typename T>
const char* WhyNotOf(const Session* session, const T* handle) {
  if (handle == nullptr) return "is a null pointer";
  if (!Usable(handle)) return "was freed";
  return handle->session.get() == session ? nullptr : "is of another session";
}

}  // namespace ferry::client
