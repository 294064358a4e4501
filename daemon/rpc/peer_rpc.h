// SPDX-License-Identifier: Apache-2.0
// The peer link over gRPC: PeerService for daemons that dial us, and a PeerDialer for those we
// dial.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "daemon/peer_stream.h"
#include "daemon/peer_table.h"

namespace ferry {

// A frame merges what waits for the wire; it may hold thousands of events.
inline constexpr int kPeerMessageBytes = 64 << 20;

// Calls arrive at `table` on `control`. Both must outlive the gRPC server and all streams.
// `greeted` is told the connections (as gRPC names them) that have proven whose they are, on
// control.
std::unique_ptr<grpc::Service> MakePeerService(Executor& control, PeerTable& table,
                                               std::function<void(const std::string&)> greeted);
std::unique_ptr<PeerDialer> MakePeerDialer(Executor& control);

}  // namespace ferry
