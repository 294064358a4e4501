// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_firings.h"

#include <utility>

#include "base/status.h"
#include "transfer/tcp/tcp_device_link.h"
#include "transfer/tcp/tcp_wire.h"

namespace ferry {

void TcpFirings::Join(TcpOp& op) {
  home_.Check();
  bundles_.Join(op);
  if (!op.receive()) sends_.Say(*op.link, TcpKind::kArmed, {op.op.tag, 0, 0});
}

bool TcpFirings::Poll() {
  home_.Check();
  bool any = false;
  for (size_t i = 0; i < bundles_.size(); ++i) {
    TcpBundle& bundle = bundles_[i];
    if (!bundle.trigger.Ready()) continue;
    bundle.trigger.Begin();
    for (TcpOp* const op : bundle.ops) Begin(*op);
    any = true;
  }
  return any;
}

void TcpFirings::Begin(TcpOp& op) {
  const uint64_t firing = op.bundle->trigger.next();
  if (!op.bundle->trigger.begun() || op.wanted < (op.receive() ? 1 : firing))
    return;  // the other end does not
  op.firing = firing;
  op.cut = op.over = 0;
  if (op.receive()) return sends_.Say(*op.link, TcpKind::kWanted, {op.op.tag, firing, 0});
  if (op.bytes() == 0) return sends_.Say(*op.link, TcpKind::kBytes, {op.op.tag, 0, 0});
  sends_.Enqueue(op);
}

void TcpFirings::Over(TcpOp& op) {
  home_.Check();
  TcpBundle& bundle = *op.bundle;
  op.fired = op.firing;
  bundle.trigger.Over(op.fired, 1, bundle.ops.size());
  if (op.receive()) sends_.Say(*op.link, TcpKind::kArrived, {op.op.tag, op.fired, 0});
}

void TcpFirings::OnArmed(TcpOp& receive) {
  home_.Check();
  if (std::exchange(receive.wanted, 1) == 0) Begin(receive);
}

void TcpFirings::OnWanted(TcpOp& send, uint64_t firing) {
  home_.Check();
  if (firing != send.fired + 1 || send.wanted == firing) {
    return ops_.End(send,
                    TcpOps::OpError(absl::StatusCode::kInternal, Reason::kProtocolError, send.op,
                                    "the peer wants a firing that is not the next one"));
  }
  send.wanted = firing;
  if (send.bundle->trigger.next() == firing) Begin(send);
}

void TcpFirings::OnArrived(TcpOp& send, uint64_t firing) {
  home_.Check();
  if (firing != send.firing || firing != send.fired + 1 || send.cut != send.bytes() ||
      send.copying > 0) {
    return ops_.End(send,
                    TcpOps::OpError(absl::StatusCode::kInternal, Reason::kProtocolError, send.op,
                                    "the peer says that what was not sent has arrived"));
  }
  // Of a message the first bytes may have arrived while the last ones are not written yet.
  if (send.over < send.bytes()) {
    for (const auto& connection : send.link->connections) connection->out.LetGo(send);
  }
  Over(send);
}

}  // namespace ferry
