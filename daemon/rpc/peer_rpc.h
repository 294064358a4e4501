// SPDX-License-Identifier: Apache-2.0
// The peer link over gRPC: a PeerService for daemons that dial us, and a PeerDialer to dial others.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "daemon/peer/peer_stream.h"
#include "daemon/peer/peer_table.h"

namespace ferry {

// The most bytes of one message: a frame merges what waits to be written, and may hold thousands of
// events.
inline constexpr int kPeerMessageBytes = 64 << 20;

// The service passes calls to `table` on `control`; both must outlive the gRPC server and all
// streams. `greeted` is called on control with each connection (as gRPC names it) that has proven
// whose it is.
std::unique_ptr<grpc::Service> MakePeerService(Executor& control, PeerTable& table,
                                               std::function<void(const std::string&)> greeted);
std::unique_ptr<PeerDialer> MakePeerDialer(Executor& control);

}  // namespace ferry
