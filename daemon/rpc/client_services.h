// SPDX-License-Identifier: Apache-2.0
// The gRPC services of client.sock: ferry.v1.SessionService, ferry.v1.TransferService and
// ferry.v1.ProgramService.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "daemon/rpc/cluster_devices.h"
#include "daemon/rpc/core.h"

namespace ferry {

// `core`, and everything else that is passed, must outlive the server. `node`: the name of this
// daemon's node.
std::unique_ptr<grpc::Service> MakeSessionService(RpcCore& core, const LocalDevices& devices,
                                                  const PeerTable& peers, const std::string& node);
std::unique_ptr<grpc::Service> MakeTransferService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeProgramService(RpcCore& core);

}  // namespace ferry
