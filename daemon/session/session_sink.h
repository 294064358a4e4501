// SPDX-License-Identifier: Apache-2.0
// What sessions need of the daemon's other parts. Implemented by whoever builds the SessionTable,
// and outlives it. All functions are called on control.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "base/executor.h"
#include "base/ids.h"
#include "daemon/attach.h"
#include "daemon/door.h"
#include "daemon/post.h"

namespace ferry {

class Session;

class SessionSink {
 public:
  virtual ~SessionSink() = default;

  // Sends a packet on a client's connection, with descriptors. False if the client does not take
  // it.
  virtual bool Send(Door::ConnectionId connection, const AttachReply& reply,
                    const std::vector<int>& fds) = 0;
  virtual void Close(Door::ConnectionId connection) = 0;
  // TransferDriver or JobTable takes the batch.
  virtual PostReply Post(Session& session, PostBatch batch) = 0;
  // Runs the task on control once what this batch of tasks has caused is on its way.
  virtual void Later(Task task) = 0;
  // The client of a session is gone: the session's transfers and jobs must end.
  virtual void OnEnded(SessionId session) = 0;
  // An arena was released: peers that have mapped it must be told.
  virtual void OnArenaGone(ArenaId arena) = 0;
  // The prepared batch that this transfer or job belongs to must end.
  virtual void EndPrepared(TransferId member, const absl::Status& why) = 0;
  // A process has one session more (`by` is 1) or less (-1).
  virtual void OnSessions(const Credentials& process, int by) = 0;
};

}  // namespace ferry
