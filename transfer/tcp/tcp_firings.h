// SPDX-License-Identifier: Apache-2.0
// TcpFirings agrees with the other end on each firing of a prepared transfer: says what tcp_wire.h
// has for it, and answers what the other end says. A send announces itself once. For each firing,
// the destination says that it wants it, the source sends the bytes once its own end wants it too,
// and the destination says that they have arrived.
//
// An op ends (PROTOCOL_ERROR) whose other end wants a firing that is not the next one, or says that
// bytes have arrived that were not sent.
//
// Home: the lane. Owner: TcpTransport; TcpReceives calls. Owns nothing: TcpBundles has the ops.
#pragma once

#include <cstdint>

#include "base/home.h"
#include "transfer/tcp/tcp_bundles.h"
#include "transfer/tcp/tcp_op.h"
#include "transfer/tcp/tcp_ops.h"
#include "transfer/tcp/tcp_sends.h"

namespace ferry {

class TcpFirings {
 public:
  TcpFirings(TcpBundles& bundles, TcpOps& ops, TcpSends& sends)
      : bundles_(bundles), ops_(ops), sends_(sends) {}

  // The op, which is prepared, waits for its firings until it ends.
  void Join(TcpOp& op);
  // Begins the firings that this end wants now; false if there is none.
  bool Poll();
  // All bytes of the op's firing have arrived.
  void Over(TcpOp& op);

  // --- What the other end says.

  void OnArmed(TcpOp& receive);
  void OnWanted(TcpOp& send, uint64_t firing);
  void OnArrived(TcpOp& send, uint64_t firing);

 private:
  // Begins the firing that is waited for, if both ends want it.
  void Begin(TcpOp& op);

  TcpBundles& bundles_;
  TcpOps& ops_;
  TcpSends& sends_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
