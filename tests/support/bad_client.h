// SPDX-License-Identifier: Apache-2.0
// A client of a daemon that means harm: it attaches well, has an arena, and then says sense and
// nonsense on attach.sock and client.sock, from a seed. One thread.
#pragma once

#include <memory>
#include <string>

#include "tests/support/nonsense.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {

class BadClient {
 public:
  // `device`: one of the daemon's own, and of another daemon's. `lingers`: see Nonsense.
  BadClient(std::string client_dir, uint64_t device, uint64_t remote, uint64_t seed,
            bool lingers = false);
  // One thing that it says; now and then it goes away and comes back.
  void Step();

 private:
  void Attach();
  void SaySense();
  void SayNonsense();
  void CallNonsense();
  void FillBuffer(v1::Buffer& buffer);
  // Whatever is answered is read, so that there is room for more.
  void Read();

  const std::string client_dir_;
  const uint64_t device_;
  const uint64_t remote_;
  Nonsense nonsense_;
  std::unique_ptr<RawSession> session_;
  uint64_t arena_ = 0;
  uint64_t sequence_ = 1000;
};

}  // namespace ferry::testing
