// SPDX-License-Identifier: Apache-2.0
// A daemon's real session table and driver, with devices 1 and 2, and a peer node-b with device 3
// whose link is up. A fuzzer feeds it what clients and the peer send, and controls the time. The
// destructor checks that everything clients owned was given back.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/attach.h"
#include "daemon/job/job_table.h"
#include "daemon/session/session_table.h"
#include "daemon/transfer_driver.h"
#include "tests/daemon/home.h"
#include "tests/daemon/session_sink.h"

namespace ferry::testing {

class DaemonCore {
 public:
  // Size of an arena. Two arenas of a device can be copied to each other without a lane.
  static constexpr uint64_t kArenaBytes = TransferDriver::kInlineBytes / 2;

  DaemonCore();
  ~DaemonCore();

  // A packet on a client's attach.sock. `with_fd`: a memfd as libferry makes it comes along.
  void OnPacket(Door::ConnectionId connection, const std::string& packet, bool with_fd);
  // Opens a session with an arena on each device.
  Session* Open(Door::ConnectionId connection);
  // Posts a converted batch; does nothing if the session is gone.
  void Post(SessionId session, PostBatch batch);
  void Cancel(SessionId session, const std::vector<uint64_t>& sequences);
  void OnClosed(Door::ConnectionId connection);
  // A frame that the peer says, as bytes.
  void OnFrame(const std::string& bytes);
  void Advance(absl::Duration by);
  // Waits until threads have done what was posted to them, and carries out what came of it.
  void Settle();

 private:
  SinkFunctions TableFunctions();
  TransferDriver::Hooks DriverHooks();
  bool Send(Door::ConnectionId connection, const AttachReply& reply, const std::vector<int>& fds);

  ManualExecutor control_;
  LocalDevices& devices_;
  TestSink sink_;
  SessionTable table_;
  TransferDriver driver_;
  ManualExecutor compute_;  // nobody compiles programs, so it has no tasks
  JobRunner runner_{std::make_unique<HostComputer>(1),
                    {},
                    [](const Doorbell&, bool) {},
                    [](TransferId, absl::Status) {}};
  JobTable jobs_;
  std::map<Door::ConnectionId, bool> connections_;  // whether the connection is open
  absl::StatusOr<SessionId> opened_;                // the session that the last packet has opened
};

}  // namespace ferry::testing
