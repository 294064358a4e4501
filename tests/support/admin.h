// SPDX-License-Identifier: Apache-2.0
// A daemon's admin.sock for tests. A call that fails fails the test. Any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ferry/admin/v1/admin.pb.h"

namespace ferry::testing {

class Admin {
 public:
  explicit Admin(const std::string& admin_socket);
  ~Admin();

  admin::v1::GetStatusResponse Status();
  admin::v1::ListDevicesResponse Devices();
  admin::v1::ListSessionsResponse Sessions();
  admin::v1::ListTransfersResponse Transfers(uint32_t limit = 0);
  admin::v1::ExplainRouteResponse Explain(uint64_t source, uint64_t destination);
  std::string Dump();
  admin::v1::ListCommsResponse Comms();
  admin::v1::ListMembersResponse Members();
  // How many communicators are in `state`.
  size_t CountComms(const std::string& state);
  void WarmComm(uint64_t device, uint64_t other);
  uint32_t EvictComm(uint64_t device, uint64_t other);  // returns the attempt
  uint32_t AbortComm(uint64_t device, uint64_t other);  // returns the attempt

  // "up", "lost", ...; "" if there is no such peer.
  std::string PeerState(const std::string& node);
  // How many transfers in flight are in `state`.
  size_t Count(const std::string& state);
  uint64_t ArenaBytes();
  // The health of `service` as the daemon says it: "SERVING", "NOT_SERVING", ..., or gRPC's error.
  std::string Health(const std::string& service, int timeout_ms = 1000);

  // Declared only: most tests need none of gRPC's headers.
  struct Stubs;
  Stubs& stubs() { return *stubs_; }

 private:
  std::unique_ptr<Stubs> stubs_;
};

// The body of the answer to GET `path` on an HTTP Unix socket; "" if the answer is not 200.
std::string HttpGet(const std::string& socket, const std::string& path);

}  // namespace ferry::testing
