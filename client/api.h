// SPDX-License-Identifier: Apache-2.0
// What the files of the C boundary share (api.cc, cuda_calls.cc): the handle of a session, and how
// options and arenas cross. Any thread.
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

// `size` bytes of options at `given` into `known` bytes, zeroed, at `options`. `type` as the caller
// spells it. (api.cc)
StatusPtr CopyOptions(const char* type, const void* given, size_t size, void* options,
                      size_t known);

// The caller's options, which may be of an older, shorter or of a newer, longer type.
template <typename T>
StatusPtr Given(const char* type, const T* given, T* options) {
  *options = T{};
  if (given != nullptr) {
    FERRY_CLIENT_RETURN_IF_ERROR(CopyOptions(type, given, given->struct_size, options, sizeof(T)));
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
