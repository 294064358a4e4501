// SPDX-License-Identifier: Apache-2.0
// Speaks HTTP/2 by hand on a connected socket, as gRPC does, for calls that are begun and never
// ended. Keeps to the windows that the other end gives, and to no other rule. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/fd.h"

namespace ferry::testing {

class RawHttp2 {
 public:
  // Sends the preface.
  explicit RawHttp2(UniqueFd socket);
  // Begins a call of `path` ("/package.Service/Method"). Returns its number.
  uint32_t Begin(const std::string& path);
  // Sends, on all calls, as much of a message of `bytes` as fits the windows now, but never the
  // message's last byte. Returns how many bytes were sent.
  uint64_t SendUnfinished(uint32_t bytes);
  // Whether the other end has closed.
  bool closed() const { return closed_; }

 private:
  void SendFrame(uint8_t type, uint8_t flags, uint32_t stream, const std::string& payload);
  void ReadFrames();
  struct Call {
    int64_t window = 0;
    uint64_t sent = 0;
    bool over = false;
  };
  UniqueFd socket_;
  std::string received_;
  std::map<uint32_t, Call> calls_;
  int64_t window_ = 65'535;
  int64_t first_window_ = 65'535;
  uint32_t next_ = 1;
  bool closed_ = false;
};

}  // namespace ferry::testing
