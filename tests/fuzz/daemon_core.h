// SPDX-License-Identifier: Apache-2.0
// A daemon's session table and driver as they are, with devices 1 and 2, and a peer node-b with
// device 3 whose link is up: what clients send is let in here, and time is the test's. Afterwards
// everything that clients owned must be given back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/attach.h"
#include "daemon/job_table.h"
#include "daemon/session_table.h"
#include "daemon/transfer_driver.h"
#include "tests/daemon/home.h"

namespace ferry::testing {

class DaemonCore {
 public:
  // Of an arena: two of a device are copied without a lane.
  static constexpr uint64_t kArenaBytes = TransferDriver::kInlineBytes / 2;

  DaemonCore();
  ~DaemonCore();

  // A packet of a client's attach.sock. `with_fd`: a memfd comes along, as libferry makes it.
  void OnPacket(Door::ConnectionId connection, const std::string& packet, bool with_fd);
  // Opens a session with an arena on each device.
  Session* Open(Door::ConnectionId connection);
  // A batch, converted. Nothing if there is no such session any more.
  void Post(SessionId session, PostBatch batch);
  void Cancel(SessionId session, const std::vector<uint64_t>& sequences);
  void OnClosed(Door::ConnectionId connection);
  // What the peer says, as bytes.
  void OnFrame(const std::string& bytes);
  void Advance(absl::Duration by);
  // What was posted to threads is done, and what came of it is carried out.
  void Settle();

 private:
  SessionTable::Hooks TableHooks();
  TransferDriver::Hooks DriverHooks();
  bool Send(Door::ConnectionId connection, const AttachReply& reply, const std::vector<int>& fds);

  ManualExecutor control_;
  LocalDevices& devices_;
  SessionTable table_;
  TransferDriver driver_;
  ManualExecutor compute_;  // nobody compiles anything, so nothing runs
  JobRunner runner_{1, {}, [](const Doorbell&, bool) {}, [](TransferId, absl::Status) {}};
  JobTable jobs_;
  std::map<Door::ConnectionId, bool> connections_;  // whether it is open
  absl::StatusOr<SessionId> opened_;                // by the last packet
};

}  // namespace ferry::testing
