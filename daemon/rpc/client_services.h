// SPDX-License-Identifier: Apache-2.0
// The gRPC services of client.sock: ferry.v1.SessionService and ferry.v1.TransferService.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>

#include "daemon/rpc/core.h"

namespace ferry {

// `core` must outlive the server.
std::unique_ptr<grpc::Service> MakeSessionService(RpcCore& core);
std::unique_ptr<grpc::Service> MakeTransferService(RpcCore& core);

}  // namespace ferry
