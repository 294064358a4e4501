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

// One of the transfers that waits for its other half, though it had time to meet it; 0: none does.
uint64_t WaitingHalf(Session& session, const StreamBook::Posted& posted, uint32_t timeline,
                     uint64_t value) {
  const uint64_t over = session.timelines().Over(timeline).value;
  const uint64_t first = over < posted.first_value ? 0 : over - posted.first_value + 1;
  const uint64_t end = std::min(posted.count, value - posted.first_value + 1);
  constexpr uint64_t kIdsPerCall = 4096;
  if (first >= end) return 0;
  std::shared_ptr<Connection> connection;
  std::string response;
  std::vector<TransferInfo> transfers;
  if (session.Connected(&connection) != nullptr ||
      connection->Call(
          Method::kGet,
          EncodeGetTransfers(posted.first_id + first, std::min(end - first, kIdsPerCall)),
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
    for (const auto& [counter, at] : posted.defined) {
      if (timelines.Defined(counter) >= at) continue;
      const uint64_t& word = timelines.pages().defined[counter].value;
      if (!QueuedStores::Get().Of(&word, at).empty()) {
        std::string why = Store(word, at);
        if (!why.empty()) return why;
      } else if (timelines.Defined(counter) < at) {
        return "transfers from " + std::to_string(posted.first_id) +
               " are to be defined when counter " + std::to_string(counter) + " reaches " +
               std::to_string(at) + ", which nothing was told to see to";
      }
    }
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
