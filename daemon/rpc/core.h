// SPDX-License-Identifier: Apache-2.0
// What the gRPC services of clients and operators reach of the daemon. Everything here lives on
// control: a handler converts its request, posts to control, and answers from there. Answers wait
// in `later` until what the calls have caused is on its way.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <grpcpp/grpcpp.h>

#include "base/executor.h"
#include "daemon/job/job_table.h"
#include "daemon/rpc/connection_table.h"
#include "daemon/session/session_table.h"
#include "daemon/transfer_driver.h"

namespace ferry {

struct RpcCore {
  Executor& control;
  SessionTable& sessions;
  TransferDriver& driver;
  JobTable& jobs;
  ConnectionTable& connections;
  // Runs the task on control once what this batch of tasks has caused is on its way.
  std::function<void(Task)> later;
};

// Asks transfers and jobs of a session to end. Must be called on control.
inline TransferDriver::CancelCounts CancelOf(RpcCore& core, Session& session,
                                             const std::vector<uint64_t>& ids,
                                             const absl::Status& why) {
  std::vector<uint64_t> transfers;
  for (const uint64_t id : ids) {
    if (!core.jobs.Cancel(MakeTransferId(session.id(), id), why)) transfers.push_back(id);
  }
  TransferDriver::CancelCounts counts = core.driver.Cancel(session, transfers, why);
  counts.requested += static_cast<uint32_t>(ids.size() - transfers.size());
  return counts;
}

// The caller of an RPC: found on gRPC's thread, authenticated on control.
struct RpcCaller {
  std::optional<Caller> caller;
  std::string token;

  static RpcCaller Of(const grpc::CallbackServerContext& context, ConnectionTable& connections) {
    RpcCaller found;
    found.caller = connections.Find(context.peer());
    if (found.caller.has_value() && !found.caller->known) connections.Called(context.peer());
    auto it = context.client_metadata().find("ferry-session-bin");
    if (it != context.client_metadata().end()) {
      found.token.assign(it->second.data(), it->second.size());
    }
    return found;
  }
  // On control.
  absl::StatusOr<Session*> Authenticate(RpcCore& core) const {
    const Caller nobody;
    const Caller& who = caller.has_value() ? *caller : nobody;
    return core.sessions.Authenticate(
        token, who.credentials, who.connection,
        [&core](int connection) { return core.connections.Alive(connection); });
  }
};

}  // namespace ferry
