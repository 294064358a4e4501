// SPDX-License-Identifier: Apache-2.0
// What the files of the C boundary share (api.cc, cuda_calls.cc): the handle of a session, and how
// options and arenas cross the boundary. Any thread.
#pragma once

#include <stddef.h>

#include <memory>
#include <utility>

#include "client/arena.h"
#include "client/handle.h"
#include "client/session.h"

struct ferry_session : ferry::client::Handle<0x7365'7373'696f'6e01> {
  explicit ferry_session(std::shared_ptr<ferry::client::Session> opened)
      : session(std::move(opened)) {}

  const std::shared_ptr<ferry::client::Session> session;
};

namespace ferry::client {

// The session of a handle that is good, for a call that waits: ferry_session_close of another
// thread ends such calls and frees the handle, and the session lives until the last has returned.
inline std::shared_ptr<Session> Kept(const ferry_session* session) { return session->session; }

// Copies `size` bytes of options from `given` to `options`, which has `known` bytes and is zeroed
// first. `type` is the options' type as the caller spells it, for errors. (api.cc)
StatusPtr CopyOptions(const char* type, const void* given, size_t size, void* options,
                      size_t known);

// Reads the caller's options, whose type may be an older, shorter one or a newer, longer one.
template <typename T>
StatusPtr Given(const char* type, const T* given, T* options) {
  *options = T{};
  if (given != nullptr) {
    FERRY_CLIENT_RETURN_IF_ERROR(CopyOptions(type, given, given->struct_size, options, sizeof(T)));
  }
  options->struct_size = sizeof(T);
  return nullptr;
}

// Calls `make`, which fills a unique_ptr, and gives the arena to the application.
template <typename Make>
StatusPtr MakeArenaHandle(ferry_arena** arena, Make make) {
  std::unique_ptr<ferry_arena> made;
  FERRY_CLIENT_RETURN_IF_ERROR(make(&made));
  *arena = made.release();
  return nullptr;
}

}  // namespace ferry::client
