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
  // A batch's transfers come together: the last group is mostly the one.
  const auto found = std::find_if(groups.rbegin(), groups.rend(), [&](const auto& group) {
    return group->own == own && group->link == op.link && group->receives == op.receive();
  });
  if (found != groups.rend()) {
    op.group = found->get();
  } else {
    op.group = groups.emplace_back(std::make_unique<Group>(lane, op)).get();
    silent += op.group->silent;
  }
  op.group->ops.push_back(&op);
  op.group->trigger.Arm();
  if (!op.receive()) Say(*op.link, TcpKind::kArmed, {op.op.tag, 0, 0});
}

void TcpTransport::Impl::Leave(Op& op) {
  Group& group = *std::exchange(op.group, nullptr);
  group.trigger.Disarm();
  std::erase(group.ops, &op);
  if (!group.ops.empty()) return;
  silent -= group.silent;
  std::erase_if(groups, [&](const auto& entry) { return entry.get() == &group; });
}

bool TcpTransport::Impl::Ready(const Group& group) const { return group.trigger.Ready(); }

bool TcpTransport::Impl::Advance(Group& group) {
  if (!Ready(group)) return false;
  group.trigger.Begin();
  for (Op* const op : group.ops) BeginFiring(*op);
  return true;
}

void TcpTransport::Impl::BeginFiring(Op& op) {
  const uint64_t firing = op.group->trigger.next();
  if (!op.group->trigger.begun() || op.wanted < (op.receive() ? 1 : firing))
    return;  // the other end does not
  op.firing = firing;
  op.cut = op.over = 0;
  if (op.receive()) return Say(*op.link, TcpKind::kWanted, {op.op.tag, firing, 0});
  if (op.bytes() == 0) return Say(*op.link, TcpKind::kBytes, {op.op.tag, 0, 0});
  Enqueue(op);
}

void TcpTransport::Impl::FiringOver(Op& op) {
  Group& group = *op.group;
  op.fired = op.firing;
  group.trigger.Over(op.fired, 1, group.ops.size());
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
  if (send.group->trigger.next() == firing) BeginFiring(send);
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
