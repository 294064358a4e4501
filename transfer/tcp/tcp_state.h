// SPDX-License-Identifier: Apache-2.0
// The state behind TcpTransport, private to tcp_transport.cc, which launches, aborts and polls. All
// else that becomes of ops, links and bytes say these:
//
//   DueConnections  the connections that are to be looked at
//   TcpStaging      host memory for bytes of GPUs, and their copies
//   TcpBundles      prepared ops, and the words that fire them
//   TcpOps          every op until it is answered, and the only way by which it ends
//   TcpSets         links to devices of peers, and their sets of connections
//   TcpSends        what is written (TcpOutgoing: the messages of one connection)
//   TcpFirings      what the ends say of firings
//   TcpReceives     what is read (TcpIncoming: the messages of one connection)
//
// Each calls only those above it; a copy that is over is told to TcpSends and TcpReceives. Home:
// the lane.
#pragma once

#include <utility>

#include "device/lane.h"
#include "transfer/staging/host_staging.h"
#include "transfer/tcp/due_connections.h"
#include "transfer/tcp/tcp_bundles.h"
#include "transfer/tcp/tcp_firings.h"
#include "transfer/tcp/tcp_ops.h"
#include "transfer/tcp/tcp_receives.h"
#include "transfer/tcp/tcp_sends.h"
#include "transfer/tcp/tcp_sets.h"
#include "transfer/tcp/tcp_staging.h"
#include "transfer/tcp/tcp_transport.h"

namespace ferry {

struct TcpTransport::Impl : Poller {
  Impl(Lane& lane, GlobalDeviceId device, Options options, Hooks hooks, GpuStaging* gpu)
      : lane(lane),
        staging(gpu),
        bundles(lane),
        ops(std::move(hooks.sink), bundles, staging),
        sets(device, options, std::move(hooks.opened), ops, staging, due),
        sends(ops, staging, sets, due),
        firings(bundles, ops, sends),
        receives(lane, ops, staging, sets, due, firings) {}

  void TakeDown();
  void Start(TransportOp op);
  // Reads and writes as much as the connection allows.
  bool Serve(TcpConnection& connection);

  bool Poll() override;
  bool Busy() const override { return ops.active() || ops.has_answers(); }
  bool Watching() const override { return bundles.size() > 0; }
  bool Restless() const override { return bundles.AnySilent(); }
  int EventFd() const override { return sets.EventFd(); }
  bool PrepareToPark() override;

  Lane& lane;
  DueConnections due;
  TcpStaging staging;
  TcpBundles bundles;
  TcpOps ops;
  TcpSets sets;
  TcpSends sends;
  TcpFirings firings;
  TcpReceives receives;
};

}  // namespace ferry
