// SPDX-License-Identifier: Apache-2.0
// What the files of the C boundary share (api.cc, cuda_calls.cc): the handle of a session, and how
// options and arenas cross. Any thread.
#pragma once

#include <string.h>

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

// The caller's struct, which may be an older, shorter or a newer, longer one.
template <typename T>
StatusPtr Given(const T* given, T* options) {
  *options = T{};
  if (given != nullptr) {
    if (given->struct_size < sizeof(given->struct_size)) {
      return Error(kInvalidArgument, kReasonFieldInvalid, "options: struct_size is not set");
    }
    memcpy(static_cast<void*>(options), given,
           given->struct_size < sizeof(T) ? given->struct_size : sizeof(T));
  }
  options->struct_size = sizeof(T);
  return nullptr;
}

// `make` fills a unique_ptr, which becomes the application's.
template <typename Make>
StatusPtr MakeArenaHandle(ferry_arena** arena, Make make) {
  std::unique_ptr<ferry_arena> made;
  FERRY_CLIENT_RETURN_IF_ERROR(make(&made));
  *arena = made.release();
  return nullptr;
}

}  // namespace ferry::client
