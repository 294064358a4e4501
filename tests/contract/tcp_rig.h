// SPDX-License-Identifier: Apache-2.0
// Two ends with a TcpTransport each, of which end 0 dials. What the door and the peer table do for
// the other one, a thread does here: it takes connections, checks their preamble and answers.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/mutex.h"
#include "tests/contract/rig.h"
#include "transfer/tcp/tcp_transport.h"

namespace ferry {

inline constexpr absl::string_view kTcpTestKey = "0123456789abcdef0123456789abcdef";

// Listens on loopback as long as it lives.
class TcpDoor {
 public:
  using OnConnection = std::function<void(const TcpPreamble&, UniqueFd)>;
  // What does not know the key is closed.
  TcpDoor(std::string key, OnConnection on_connection);
  ~TcpDoor();
  TcpAddress address() const { return address_; }
  // From here on.
  void SetKey(std::string key);
  // The next `count` connections are closed unanswered.
  void Refuse(int count) { refuse_ = count; }

 private:
  void Run();
  Mutex mutex_;
  std::string key_ ABSL_GUARDED_BY(mutex_);
  const OnConnection on_connection_;
  UniqueFd listener_;
  UniqueFd stop_;
  TcpAddress address_;
  std::atomic<int> refuse_ = 0;
  std::thread thread_;
};

class TcpRig : public Rig {
 public:
  explicit TcpRig(uint64_t arena_bytes, std::array<bool, 2> gpus = {});
  ~TcpRig() override;
  bool two_sided() const override { return true; }
  Transport& transport(int end) override { return *transports_[end]; }
  TcpTransport& tcp(int end) { return *transports_[end]; }
  void TakeDown(int end) override { transports_[end].reset(); }
  // Tells both ends of a new link. It has a key of its own, so a connection that was dialled for an
  // earlier link belongs to nobody.
  void Connect();
  void Disconnect(int end);
  // Of the link that is up.
  const std::string& key() const { return key_; }

 private:
  std::unique_ptr<TcpTransport> transports_[2];
  std::string key_;
  int links_ = 0;  // so many were up
  std::unique_ptr<TcpDoor> door_;
};

}  // namespace ferry
