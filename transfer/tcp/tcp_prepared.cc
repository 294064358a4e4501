// SPDX-License-Identifier: Apache-2.0
// Firings of prepared transfers (tcp_wire.h): the lanes agree on each by themselves.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "transfer/tcp/tcp_state.h"

namespace ferry {

void TcpTransport::Impl::Join(Op& op) {
  PreparedBatch* const own = op.op.prepared->own;
  // A batch's transfers come together: mostly it is the last bundle's.
  const auto found = std::find_if(bundles.rbegin(), bundles.rend(), [&](const auto& bundle) {
    return bundle->own == own && bundle->link == op.link && bundle->receives == op.receive();
  });
  if (found != bundles.rend()) {
    op.bundle = found->get();
  } else {
    op.bundle = bundles.emplace_back(std::make_unique<Bundle>(lane, op)).get();
    silent += op.bundle->silent;
  }
  op.bundle->ops.push_back(&op);
  op.bundle->trigger.Arm();
  if (!op.receive()) Say(*op.link, TcpKind::kArmed, {op.op.tag, 0, 0});
}

void TcpTransport::Impl::Leave(Op& op) {
  Bundle& bundle = *std::exchange(op.bundle, nullptr);
  bundle.trigger.Disarm();
  std::erase(bundle.ops, &op);
  if (!bundle.ops.empty()) return;
  silent -= bundle.silent;
  std::erase_if(bundles, [&](const auto& entry) { return entry.get() == &bundle; });
}

bool TcpTransport::Impl::Ready(const Bundle& bundle) const { return bundle.trigger.Ready(); }

bool TcpTransport::Impl::Advance(Bundle& bundle) {
  if (!Ready(bundle)) return false;
  bundle.trigger.Begin();
  for (Op* const op : bundle.ops) BeginFiring(*op);
  return true;
}

void TcpTransport::Impl::BeginFiring(Op& op) {
  const uint64_t firing = op.bundle->trigger.next();
  if (!op.bundle->trigger.begun() || op.wanted < (op.receive() ? 1 : firing))
    return;  // the other end does not
  op.firing = firing;
  op.cut = op.over = 0;
  if (op.receive()) return Say(*op.link, TcpKind::kWanted, {op.op.tag, firing, 0});
  if (op.bytes() == 0) return Say(*op.link, TcpKind::kBytes, {op.op.tag, 0, 0});
  Enqueue(op);
}

void TcpTransport::Impl::FiringOver(Op& op) {
  Bundle& bundle = *op.bundle;
  op.fired = op.firing;
  bundle.trigger.Over(op.fired, 1, bundle.ops.size());
  if (op.receive()) Say(*op.link, TcpKind::kArrived, {op.op.tag, op.fired, 0});
}

void TcpTransport::Impl::OnArmed(Op& receive) {
  if (std::exchange(receive.wanted, 1) == 0) BeginFiring(receive);
}

void TcpTransport::Impl::OnWanted(Op& send, uint64_t firing) {
  if (firing != send.fired + 1 || send.wanted == firing) {
    return End(send, OpError(absl::StatusCode::kInternal, Reason::kProtocolError, send.op,
                             "the peer wants a firing that is not the next one"));
  }
  send.wanted = firing;
  if (send.bundle->trigger.next() == firing) BeginFiring(send);
}

void TcpTransport::Impl::OnSaidArrived(Op& send, uint64_t firing) {
  if (firing != send.firing || firing != send.fired + 1 || send.cut != send.bytes() ||
      send.copying > 0) {
    return End(send, OpError(absl::StatusCode::kInternal, Reason::kProtocolError, send.op,
                             "the peer says that what was not sent has arrived"));
  }
  // Of a message the first bytes may have arrived while the last ones are not written yet.
  if (send.over < send.bytes()) {
    for (const auto& connection : send.link->connections) LetGo(connection->out, send);
  }
  FiringOver(send);
}

}  // namespace ferry
