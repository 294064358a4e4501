// SPDX-License-Identifier: Apache-2.0
// A malicious client of a daemon: attaches properly, has an arena, and then sends valid and invalid
// messages on attach.sock and client.sock, from a seed. One thread.
#pragma once

#include <memory>
#include <string>

#include "tests/support/nonsense.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {

class BadClient {
 public:
  // `device` is one of the daemon's own, `remote` one of another daemon's. `lingers`: see Nonsense.
  BadClient(std::string client_dir, uint64_t device, uint64_t remote, uint64_t seed,
            bool lingers = false);
  // Sends one thing; now and then goes away and comes back.
  void Step();

 private:
  void Attach();
  void SaySense();
  void SayNonsense();
  void CallNonsense();
  void FillBuffer(v1::Buffer& buffer);
  // Reads all answers, so that there is room for more.
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
