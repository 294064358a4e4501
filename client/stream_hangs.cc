// SPDX-License-Identifier: Apache-2.0
#include "client/stream_hangs.h"

#include <algorithm>
#include <deque>
#include <map>
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

// The longest time from the posting of both halves until they meet at the destination's daemon.
constexpr uint64_t kMeetingNs = 50'000'000;

// The transfers of a batch that are not over and whose value is at most a given one of its counter.
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

// What the daemon says of `count` transfers of the batch from `first` on, or of the first of them.
// Empty if the daemon is lost, or about to be: then they end.
std::vector<TransferInfo> Ask(Session& session, const StreamBook::Posted& posted, size_t first,
                              size_t count) {
  constexpr size_t kIdsPerCall = 4096;
  std::shared_ptr<Connection> connection;
  std::string response;
  std::vector<TransferInfo> transfers;
  if (count == 0 || session.Connected(&connection) != nullptr ||
      connection->Call(
          Method::kGet,
          EncodeGetTransfers(posted.first_id + first, std::min<size_t>(count, kIdsPerCall)),
          &response) != nullptr ||
      !DecodeGetTransfers(response, &transfers)) {
    return {};
  }
  return transfers;
}

// A batch of which some transfers may be what a wait hangs on. The counter tells the oldest
// transfer that is not over. Later ones may have ended, which only the daemon knows. It is asked
// once there is something to refuse.
class Suspects {
 public:
  Suspects(Session& session, StreamBook::Posted posted, uint32_t timeline, uint64_t value)
      : session_(session),
        posted_(std::move(posted)),
        ahead_(AheadOf(session, posted_, timeline, value)) {}

  const StreamBook::Posted& posted() const { return posted_; }
  Ahead ahead() const { return ahead_; }
  // Whether transfer `index`, at least ahead().first, waits for its other half.
  bool WaitsForOther(size_t index) { return StateOf(index) == kTransferWaiting; }
  // ... or to be defined.
  bool Waits(size_t index) {
    const int state = StateOf(index);
    return state == kTransferWaiting || state == kTransferMatched;
  }

 private:
  int StateOf(size_t index) {
    if (index < asked_from_ || index - asked_from_ >= asked_.size()) {
      asked_ = Ask(session_, posted_, index, ahead_.end - index);
      asked_from_ = index;
    }
    return asked_.empty() ? 0 : asked_[index - asked_from_].state;
  }

  Session& session_;
  const StreamBook::Posted posted_;
  const Ahead ahead_;
  size_t asked_from_ = 0;
  std::vector<TransferInfo> asked_;
};

// Other halves of a batch's transfers that this process has posted and that are not over, by what
// the two halves have in common.
class OwnHalves {
 public:
  struct Half {
    std::shared_ptr<Session> session;
    Suspects* batch;
    size_t index;  // in the batch
  };
  explicit OwnHalves(const Suspects& of);

  // In the order in which they were posted. Of several halves of one name the oldest that still
  // waits is the other half, because a name is used again only when its transfer has matched or is
  // over.
  const std::vector<Half>& Of(uint64_t name) const { return halves_.at(name); }

 private:
  std::deque<Suspects> batches_;
  std::map<uint64_t, std::vector<Half>> halves_;
};

OwnHalves::OwnHalves(const Suspects& of) {
  for (size_t i = of.ahead().first; i < of.ahead().end; ++i) {
    halves_[of.posted().transfers[i].name];
  }
  for (const std::shared_ptr<Session>& session : Session::All()) {
    if (!session->Mine()) continue;
    for (uint32_t timeline = 0; timeline < FERRY_TIMELINE_COUNTERS; ++timeline) {
      for (StreamBook::Posted& posted : session->streams().Open(timeline, UINT64_MAX)) {
        if (posted.receives == of.posted().receives) continue;
        Suspects& batch = batches_.emplace_back(*session, std::move(posted), timeline, UINT64_MAX);
        for (size_t i = batch.ahead().first; i < batch.ahead().end; ++i) {
          const auto named = halves_.find(batch.posted().transfers[i].name);
          if (named != halves_.end()) named->second.push_back({session, &batch, i});
        }
      }
    }
  }
  for (auto& [name, halves] : halves_) {
    std::sort(halves.begin(), halves.end(), [](const Half& a, const Half& b) {
      return a.batch->posted().first_id + a.index < b.batch->posted().first_id + b.index;
    });
  }
}

// A transfer of the batch that waits for its other half, which this process has not posted; 0 if
// there is none. Halves that both wait are about to meet.
uint64_t MissingHalf(Suspects& of, const OwnHalves& own) {
  for (size_t i = of.ahead().first; i < of.ahead().end; ++i) {
    const std::vector<OwnHalves::Half>& halves = own.Of(of.posted().transfers[i].name);
    if (of.WaitsForOther(i) &&
        std::none_of(halves.begin(), halves.end(), [](const OwnHalves::Half& half) {
          return half.batch->WaitsForOther(half.index);
        })) {
      return of.posted().first_id + i;
    }
  }
  return 0;
}

// One question, followed from stream to stream. Each function returns why its argument hangs, or
// "".
class Search {
 public:
  std::string Over(Session& session, uint32_t timeline, uint64_t value);
  std::string Firing(const std::vector<PreparedEnd>& ends, uint64_t firing);

 private:
  std::string Definition(Session& session, const StreamBook::Posted& posted, size_t index);
  std::string OtherHalves(Suspects& of, const OwnHalves& own);
  std::string Store(const uint64_t& word, uint64_t value);
  std::string Wait(const ParkedStreams::Wait& wait);

  using Target = std::pair<const uint64_t*, uint64_t>;
  std::set<Target> above_;  // targets whose waits are being followed
  std::set<Target> good_;   // targets that do not hang
};

std::string Search::Over(Session& session, uint32_t timeline, uint64_t value) {
  Timelines& timelines = session.timelines();
  if (timelines.posted(timeline) < value) {
    return "'over' counter " + std::to_string(timeline) + " was given out to " +
           std::to_string(timelines.posted(timeline)) + " only, so the transfer is not posted yet";
  }
  for (const StreamBook::Posted& posted : session.streams().Open(timeline, value)) {
    Suspects suspects(session, posted, timeline, value);
    for (size_t i = suspects.ahead().first; i < suspects.ahead().end; ++i) {
      std::string why = Definition(session, posted, i);
      if (!why.empty() && suspects.Waits(i)) return why;
    }
    const OwnHalves own(suspects);
    std::string why = OtherHalves(suspects, own);
    if (!why.empty()) return why;
    if (!std::all_of(posted.remotes.begin(), posted.remotes.end(), DeviceUse::InUse)) continue;
    if (MissingHalf(suspects, own) == 0 ||
        timelines.WaitOver(timeline, value, DeadlineAfter(kMeetingNs)) !=
            Timelines::Wait::kTimeout) {
      continue;
    }
    Suspects later(session, posted, timeline, value);
    if (const uint64_t id = MissingHalf(later, OwnHalves(later)); id != 0) {
      return "transfer " + std::to_string(id) +
             " waits for its other half, and this process has arenas on the device of that";
    }
  }
  return "";
}

// Why transfer `index` of the batch is never defined.
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

// Why an other half that this process has posted itself is never defined.
std::string Search::OtherHalves(Suspects& of, const OwnHalves& own) {
  for (size_t i = of.ahead().first; i < of.ahead().end; ++i) {
    const std::vector<OwnHalves::Half>& halves = own.Of(of.posted().transfers[i].name);
    std::vector<std::string> why;
    for (const OwnHalves::Half& half : halves) {
      why.push_back(Definition(*half.session, half.batch->posted(), half.index));
    }
    // The daemons are asked last, and only if there is something to refuse.
    if (std::all_of(why.begin(), why.end(), [](const std::string& one) { return one.empty(); }) ||
        !of.Waits(i)) {
      continue;
    }
    const auto other = std::find_if(halves.begin(), halves.end(), [](const OwnHalves::Half& half) {
      return half.batch->Waits(half.index);
    });
    if (other == halves.end()) continue;
    const std::string& reason = why[static_cast<size_t>(other - halves.begin())];
    if (!reason.empty()) return "its other half is this process's: " + reason;
  }
  return "";
}

std::string Search::Firing(const std::vector<PreparedEnd>& ends, uint64_t firing) {
  for (const PreparedEnd& end : ends) {
    if (end.joined || end.place.first_id == 0 || end.place.life->ended()) continue;
    if (end.place.fired < firing) {
      return (&end == &ends.front() ? "this end" : "another end of it, which is in this process,") +
             std::string(" was fired ") + std::to_string(end.place.fired) + " times";
    }
    std::string why =
        Store(end.session->timelines().pages().prepared_defined[end.place.number].value,
              Timelines::PreparedValue(*end.place.life, firing));
    if (!why.empty()) return why;
  }
  return "";
}

// Something was queued that will store `value` in the word. One store that does not hang is enough.
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
  std::string why;
  if (wait.timeline >= 0) {
    why = Over(*session, static_cast<uint32_t>(wait.timeline), wait.value);
  } else if (const auto ends = EndsHere(*session, wait.word); !ends.empty()) {
    // Not over, so the firing is above the number from which this life's firings count.
    why = Firing(ends, wait.value - ends.front().place.life->prepared_from());
  }
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
