// SPDX-License-Identifier: Apache-2.0
#include "transfer/tcp/tcp_bundles.h"

#include <algorithm>
#include <utility>

namespace ferry {

void TcpBundles::Join(TcpOp& op) {
  home_.Check();
  PreparedBatch* const own = op.op.prepared->own;
  // A batch's transfers come together: mostly it is the last bundle's.
  const auto found = std::find_if(bundles_.rbegin(), bundles_.rend(), [&](const auto& bundle) {
    return bundle->own == own && bundle->link == op.link && bundle->receives == op.receive();
  });
  if (found != bundles_.rend()) {
    op.bundle = found->get();
  } else {
    op.bundle = bundles_.emplace_back(std::make_unique<TcpBundle>(lane_, op)).get();
    silent_ += op.bundle->silent;
  }
  op.bundle->ops.push_back(&op);
  op.bundle->trigger.Arm();
}

void TcpBundles::Leave(TcpOp& op) {
  home_.Check();
  TcpBundle& bundle = *std::exchange(op.bundle, nullptr);
  bundle.trigger.Disarm();
  std::erase(bundle.ops, &op);
  if (!bundle.ops.empty()) return;
  silent_ -= bundle.silent;
  std::erase_if(bundles_, [&](const auto& entry) { return entry.get() == &bundle; });
}

bool TcpBundles::AnyReady() const {
  home_.Check();
  return std::any_of(bundles_.begin(), bundles_.end(),
                     [](const auto& bundle) { return bundle->trigger.Ready(); });
}

}  // namespace ferry
