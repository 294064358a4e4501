// SPDX-License-Identifier: Apache-2.0
// A Rig of two ends with a TcpTransport each; end 0 dials. For end 1 a thread does what the door
// and the peer table would: it takes connections, checks their preamble and answers.
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
  // A connection whose preamble does not prove `key` is closed.
  TcpDoor(std::string key, OnConnection on_connection);
  ~TcpDoor();
  TcpAddress address() const { return address_; }
  // Changes the key for connections that come from here on.
  void SetKey(std::string key);
  // Closes the next `count` connections unanswered.
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
  // Tells both ends of a new link with a key of its own. So a connection that was dialled for an
  // earlier link belongs to no link.
  void Connect();
  void Disconnect(int end);
  // The key of the link that is up.
  const std::string& key() const { return key_; }

 private:
  std::unique_ptr<TcpTransport> transports_[2];
  std::string key_;
  int links_ = 0;  // how many links there were so far
  std::unique_ptr<TcpDoor> door_;
};

}  // namespace ferry
