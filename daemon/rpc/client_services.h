// SPDX-License-Identifier: Apache-2.0
// The gRPC services of client.sock: ferry.v1.SessionService, ferry.v1.TransferService and
// ferry.v1.ProgramService.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "daemon/rpc/core.h"

namespace ferry {

// `core` must outlive the server.
std::unique_ptr<grpc::Service> MakeSessionService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeTransferService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeProgramService(RpcCore& core);

}  // namespace ferry
