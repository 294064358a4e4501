// SPDX-License-Identifier: Apache-2.0
#include "client/stream_hangs.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "client/device_use.h"
#include "client/parked_streams.h"
#include "client/prepared.h"
#include "client/queued_stores.h"
#include "client/session.h"

namespace ferry::client {
namespace {

// Between the posting of both halves and their meeting at the destination's daemon.
constexpr uint64_t kMeetingNs = 50'000'000;

// The transfers of a batch that are not over, and come up to a value of its counter.
struct Ahead {
  size_t first = 0, end = 0;
};
Ahead AheadOf(Session& session, const StreamBook::Posted& posted, uint32_t timeline,
              uint64_t value) {
  const uint64_t over = session.timelines().Over(timeline).value;
  Ahead ahead;
  ahead.first = over < posted.first_value ? 0 : over - posted.first_value + 1;
  ahead.end = std::min<uint64_t>(posted.transfers.size(), value - posted.first_value + 1);
  ahead.first = std::min(ahead.first, ahead.end);
  return ahead;
}

// One of them that waits for its other half; 0: none does.
uint64_t WaitingHalf(Session& session, const StreamBook::Posted& posted, uint32_t timeline,
                     uint64_t value) {
  const Ahead ahead = AheadOf(session, posted, timeline, value);
  constexpr uint64_t kIdsPerCall = 4096;
  if (ahead.first == ahead.end) return 0;
  std::shared_ptr<Connection> connection;
  std::string response;
  std::vector<TransferInfo> transfers;
  if (session.Connected(&connection) != nullptr ||
      connection->Call(Method::kGet,
                       EncodeGetTransfers(posted.first_id + ahead.first,
                                          std::min(ahead.end - ahead.first, kIdsPerCall)),
                       &response) != nullptr ||
      !DecodeGetTransfers(response, &transfers)) {
    return 0;  // lost, or about to be: the wait will end
  }
  for (const TransferInfo& transfer : transfers) {
    if (transfer.state == kTransferWaiting) return transfer.id;
  }
  return 0;
}

// One question, followed from stream to stream. Each function says why its argument hangs, or "".
class Search {
 public:
  std::string Over(Session& session, uint32_t timeline, uint64_t value);
  std::string Firing(const std::vector<PreparedEnd>& ends, uint64_t firing);

 private:
  std::string Definition(Session& session, const StreamBook::Posted& posted, size_t index);
  std::string OtherHalves(const StreamBook::Posted& of, std::set<uint64_t> names);
  std::string Store(const uint64_t& word, uint64_t value);
  std::string Wait(const ParkedStreams::Wait& wait);

  using Target = std::pair<const uint64_t*, uint64_t>;
  std::set<Target> above_;  // whose waits are being followed
  std::set<Target> good_;   // that do not hang
};

std::string Search::Over(Session& session, uint32_t timeline, uint64_t value) {
  Timelines& timelines = session.timelines();
  if (timelines.posted(timeline) < value) {
    return "'over' counter " + std::to_string(timeline) + " was given out to " +
           std::to_string(timelines.posted(timeline)) + " only, so the transfer is not posted yet";
  }
  for (const StreamBook::Posted& posted : session.streams().Open(timeline, value)) {
    const Ahead ahead = AheadOf(session, posted, timeline, value);
    std::set<uint64_t> names;
    for (size_t i = ahead.first; i < ahead.end; ++i) {
      std::string why = Definition(session, posted, i);
      if (!why.empty()) return why;
      names.insert(posted.transfers[i].name);
    }
    std::string why = OtherHalves(posted, std::move(names));
    if (!why.empty()) return why;
    if (!std::all_of(posted.remotes.begin(), posted.remotes.end(), DeviceUse::InUse)) continue;
    if (WaitingHalf(session, posted, timeline, value) == 0 ||
        timelines.WaitOver(timeline, value, DeadlineAfter(kMeetingNs)) !=
            Timelines::Wait::kTimeout) {
      continue;
    }
    if (const uint64_t id = WaitingHalf(session, posted, timeline, value); id != 0) {
      return "transfer " + std::to_string(id) +
             " waits for its other half, and this process has arenas on the device of that";
    }
  }
  return "";
}

// Of the batch's transfer `index`.
std::string Search::Definition(Session& session, const StreamBook::Posted& posted, size_t index) {
  const StreamBook::Transfer& transfer = posted.transfers[index];
  const Timelines& timelines = session.timelines();
  if (timelines.Defined(transfer.counter) >= transfer.defined_at) return "";
  const uint64_t& word = session.timelines().pages().defined[transfer.counter].value;
  if (!QueuedStores::Get().Of(&word, transfer.defined_at).empty()) {
    return Store(word, transfer.defined_at);
  }
  if (timelines.Defined(transfer.counter) >= transfer.defined_at) return "";
  return "transfer " + std::to_string(posted.first_id + index) + " is to be defined when counter " +
         std::to_string(transfer.counter) + " reaches " + std::to_string(transfer.defined_at) +
         ", which nothing was told to see to";
}

// Those that this process has posted itself, for the transfers of these names.
std::string Search::OtherHalves(const StreamBook::Posted& of, std::set<uint64_t> names) {
  for (const std::shared_ptr<Session>& session : Session::All()) {
    if (!session->Mine()) continue;
    for (uint32_t timeline = 0; timeline < FERRY_TIMELINE_COUNTERS; ++timeline) {
      for (const StreamBook::Posted& posted : session->streams().Open(timeline, UINT64_MAX)) {
        if (posted.receives == of.receives) continue;
        const Ahead ahead = AheadOf(*session, posted, timeline, UINT64_MAX);
        for (size_t i = ahead.first; i < ahead.end; ++i) {
          if (names.erase(posted.transfers[i].name) == 0) continue;
          std::string why = Definition(*session, posted, i);
          if (!why.empty()) return "its other half is this process's: " + why;
        }
      }
    }
  }
  return "";
}

std::string Search::Firing(const std::vector<PreparedEnd>& ends, uint64_t firing) {
  for (const PreparedEnd& end : ends) {
    if (end.joined || end.place.first_id == 0 || end.place.life->ended()) continue;
    if (end.place.fired < firing) {
      return (&end == &ends.front() ? "this end"
                                    : "an other end of it, which is in this process,") +
             std::string(" was fired ") + std::to_string(end.place.fired) + " times";
    }
    std::string why =
        Store(end.session->timelines().pages().prepared_defined[end.place.number].value, firing);
    if (!why.empty()) return why;
  }
  return "";
}

// The word has been told to become `value`. Any of the stores that do it will do.
std::string Search::Store(const uint64_t& word, uint64_t value) {
  std::string first;
  for (const QueuedStores::Store& store : QueuedStores::Get().Of(&word, value)) {
    std::string why;
    for (const ParkedStreams::Wait& wait : ParkedStreams::Get().Before(store.stream, store.place)) {
      why = Wait(wait);
      if (!why.empty()) break;
    }
    if (why.empty()) return "";
    if (first.empty()) first = std::move(why);
  }
  if (!first.empty()) first.insert(0, "the stream that was told to see to it waits itself, and ");
  return first;
}

std::string Search::Wait(const ParkedStreams::Wait& wait) {
  const std::shared_ptr<Session> session = wait.session.lock();
  const Target target{wait.word, wait.value};
  if (session == nullptr || good_.count(target) != 0) return "";
  if (!above_.insert(target).second) return "streams wait for each other";
  std::string why = wait.timeline < 0
                        ? Firing(EndsHere(*session, wait.word), wait.value)
                        : Over(*session, static_cast<uint32_t>(wait.timeline), wait.value);
  above_.erase(target);
  if (why.empty()) good_.insert(target);
  return why;
}

}  // namespace

std::string OverHangs(Session& session, uint32_t timeline, uint64_t value) {
  return Search().Over(session, timeline, value);
}

std::string PreparedHangs(const ferry_prepared& prepared, uint64_t firing) {
  return Search().Firing(EndsHere(prepared), firing);
}

}  // namespace ferry::client
