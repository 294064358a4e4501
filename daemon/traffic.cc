// SPDX-License-Identifier: Apache-2.0
#include "daemon/traffic.h"

#include <algorithm>

#include "daemon/session/session_table.h"

namespace ferry {
namespace {

template <typename Transfer>
Traffic::Way WayOf(const Transfer& transfer) {
  const bool send = transfer.side == Side::kSend;
  return {send ? transfer.source : transfer.destination,
          send ? transfer.destination : transfer.source, transfer.route};
}

// Reads the firings of prepared batches. The transfers of a batch come one after the other, so the
// last answer is kept.
class Firings {
 public:
  explicit Firings(SessionTable& sessions) : sessions_(sessions) {}
  uint64_t Of(const TransferBrief& transfer) {
    const SessionId session = SessionOf(transfer.transfer);
    if (known_ && session == session_ && transfer.batch == batch_) return firings_;
    known_ = true;
    session_ = session;
    batch_ = transfer.batch;
    const Session* const owner = sessions_.Find(session);
    const PreparedRecord* const record =
        owner == nullptr ? nullptr : owner->prepared().Find(transfer.batch);
    return firings_ = record == nullptr ? 0 : record->batch->firings();
  }

 private:
  SessionTable& sessions_;
  bool known_ = false;
  SessionId session_;
  uint32_t batch_ = 0;
  uint64_t firings_ = 0;
};

}  // namespace

Moved Traffic::OnEnded(const Ended& ended, uint64_t firings) {
  home_.Check();
  Moved moved;
  if (ended.prepared) moved.Count(ended.side, ended.bytes, firings);
  fired_[static_cast<size_t>(ended.route)] += moved;
  if (!ended.status.ok()) {
    moved.failed = ended.count;
  } else if (!ended.prepared) {
    moved.Count(ended.side, ended.bytes, ended.count);
  }
  ways_[WayOf(ended)] += moved;
  return moved;
}

Traffic::View Traffic::Look(const EngineView& transfers, SessionTable& sessions,
                            size_t oldest) const {
  home_.Check();
  View view;
  view.ways = ways_;
  view.fired = fired_;
  Firings firings(sessions);
  transfers.Visit([&](const TransferBrief& transfer) {
    Standing& standing = view.states[static_cast<size_t>(transfer.state)];
    ++standing.count;
    standing.oldest = std::min(standing.oldest, transfer.posted);
    const size_t route = static_cast<size_t>(transfer.route);
    if (transfer.state == ShownState::kLaunched) {
      ++view.launched[std::get<0>(WayOf(transfer))];
      ++view.launched_by_route[route];
    }
    if (transfer.state != ShownState::kArmed && view.oldest.size() < oldest) {
      view.oldest.push_back(transfer.transfer);
    }
    if (!transfer.prepared) return;
    const uint64_t count = firings.Of(transfer);
    if (count == 0) return;
    Moved moved;
    moved.Count(transfer.side, transfer.bytes, count);
    view.ways[WayOf(transfer)] += moved;
    view.fired_of_sessions[SessionOf(transfer.transfer)] += moved;
    view.fired[route] += moved;
  });
  return view;
}

}  // namespace ferry
