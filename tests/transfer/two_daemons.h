// SPDX-License-Identifier: Apache-2.0
// Two TransferEngines, node-a (devices 0 and 1) and node-b (devices 2 and 3). The test carries
// their messages and answers their launches. A third node, node-c (device 4), is only a name.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "transfer/engine.h"
#include "transfer/tombstones.h"

namespace ferry {

inline constexpr int kA = 0;
inline constexpr int kB = 1;
inline constexpr SessionId kSession{1};

inline TransferSpec SpecOf(Side side, std::string key, uint64_t source, uint64_t destination,
                           uint64_t bytes = 4096) {
  TransferSpec spec;
  spec.side = side;
  spec.key = {"job", GlobalDeviceId(source), GlobalDeviceId(destination), std::move(key)};
  spec.bytes = bytes;
  spec.layout = {{ArenaId(side == Side::kSend ? 10 : 20), 64, bytes}};
  spec.over_timeline = 3;
  return spec;
}

inline RouteTable Routes(bool mapped, bool ucx) {
  RouteTable routes(kRoutes);
  routes[static_cast<size_t>(Route::kMapped)] = {mapped, mapped ? "" : "another host"};
  routes[static_cast<size_t>(Route::kUcx)] = {ucx, ucx ? "" : "no libucp"};
  return routes;
}

class TwoDaemons {
 public:
  struct Daemon {
    std::unique_ptr<TransferEngine> engine;
    uint64_t sequence = 0;
    std::deque<PeerMessage> to_other;  // taken from the outbox, not delivered yet
    std::vector<PeerMessage> to_c;
    std::vector<Launch> launches;
    std::vector<std::pair<TransferId, absl::Status>> aborts;
    std::vector<WordWatch> watches;
    std::vector<TransferId> unwatch;
    std::vector<PeerId> wanted;
    std::vector<Ended> ended;
    std::vector<Fired> fired;
    std::vector<Fallback> fallbacks;
    std::vector<GroupLaunch> groups;
    std::vector<CommunicatorOpen> opens;
    std::vector<GroupAhead> aheads;
    std::vector<CommunicatorClosing> closings;
    std::vector<CommunicatorEnd> communicator_ends;
  };
  // True: communicators open as soon as they are ordered. False: the test says how.
  bool opens_well = true;

  // `gpus`: devices 0 to 3 are GPUs.
  explicit TwoDaemons(TransferEngine::Options options = {}, bool gpus = false) {
    for (int i : {kA, kB}) {
      DeviceMap map;
      map.self = PeerId(i);
      for (uint64_t device = 0; device < 5; ++device)
        map.owner[GlobalDeviceId(device)] = PeerId(device / 2);
      if (gpus) map.gpus = GpusOf(i);
      map.node_names = {"node-a", "node-b", "node-c"};
      daemons[i].engine = std::make_unique<TransferEngine>(map, options);
    }
  }

  static absl::flat_hash_set<GlobalDeviceId> GpusOf(int node) {
    return {GlobalDeviceId(2 * node), GlobalDeviceId(2 * node + 1)};
  }
  TransferEngine& a() { return *daemons[kA].engine; }
  TransferEngine& b() { return *daemons[kB].engine; }
  TransferEngine& engine(int node) { return *daemons[node].engine; }

  void LinkUp(bool mapped = true, bool ucx = true) {
    for (int i : {kA, kB}) engine(i).OnPeerUp(now, PeerId(1 - i), Routes(mapped, ucx));
    Run();
  }
  void LinkLost() {
    for (int i : {kA, kB}) {
      engine(i).OnPeerLost(now, PeerId(1 - i), absl::UnavailableError("reset by peer"), true);
      daemons[i].to_other.clear();
    }
    Run();
  }

  TransferId Post(TransferSpec spec, SessionId session = kSession) {
    return PostBatch({std::move(spec)}, session);
  }
  // Posts a batch. Returns the id of the first transfer.
  TransferId PostBatch(std::vector<TransferSpec> batch, SessionId session = kSession) {
    const TransferSpec& spec = batch.front();
    const uint64_t device =
        (spec.side == Side::kSend ? spec.key.source : spec.key.destination).value();
    const int node = static_cast<int>(device / 2);
    const uint64_t sequence = daemons[node].sequence;
    daemons[node].sequence += batch.size();
    EXPECT_THAT(engine(node).Check(batch), testing::IsEmpty());
    engine(node).Post(now, session, sequence, absl::MakeSpan(batch));
    return MakeTransferId(session, sequence);
  }
  TransferId Send(std::string key = "k") { return Post(SpecOf(Side::kSend, std::move(key), 0, 2)); }
  TransferId Receive(std::string key = "k") {
    return Post(SpecOf(Side::kReceive, std::move(key), 0, 2));
  }

  // Collects what a daemon's engine wants; its messages wait in `to_other`.
  void Take(int node) {
    Daemon& daemon = daemons[node];
    Outbox out = engine(node).TakeOutbox();
    for (auto& [peer, message] : out.messages) {
      if (peer == PeerId(2)) {
        daemon.to_c.push_back(std::move(message));
      } else {
        ASSERT_EQ(peer, PeerId(1 - node));
        daemon.to_other.push_back(std::move(message));
      }
    }
    auto append = [](auto& to, auto& from) {
      std::move(from.begin(), from.end(), std::back_inserter(to));
    };
    append(daemon.launches, out.launches);
    append(daemon.aborts, out.aborts);
    append(daemon.watches, out.watches);
    append(daemon.unwatch, out.unwatch);
    append(daemon.wanted, out.wanted_peers);
    append(daemon.ended, out.ended);
    append(daemon.fired, out.fired);
    append(daemon.fallbacks, out.fallbacks);
    for (GroupOrder& order : out.groups) {
      if (auto* launch = std::get_if<GroupLaunch>(&order)) {
        daemon.groups.push_back(std::move(*launch));
      } else if (auto* open = std::get_if<CommunicatorOpen>(&order)) {
        daemon.opens.push_back(*open);
        if (!opens_well) continue;
        if (open->unique_id.empty()) {
          engine(node).OnCommunicatorId(now, open->clique, open->attempt, "unique");
          continue;
        }
        for (int i : {kA, kB}) engine(i).OnCommunicatorOpened(now, open->clique, open->attempt);
      } else if (auto* ahead = std::get_if<GroupAhead>(&order)) {
        daemon.aheads.push_back(std::move(*ahead));
      } else if (auto* closing = std::get_if<CommunicatorClosing>(&order)) {
        daemon.closings.push_back(*closing);
      } else {
        daemon.communicator_ends.push_back(std::get<CommunicatorEnd>(order));
      }
    }
  }
  // Delivers one message of `node`; false if there is none.
  bool Deliver(int node) {
    Take(node);
    if (daemons[node].to_other.empty()) return false;
    PeerMessage message = std::move(daemons[node].to_other.front());
    daemons[node].to_other.pop_front();
    engine(1 - node).OnMessage(now, PeerId(node), std::move(message));
    return true;
  }
  // Delivers messages until no engine has any.
  void Run() {
    do {
      while (Deliver(kA) || Deliver(kB)) {
      }
      Take(kA);
      Take(kB);
    } while (!daemons[kA].to_other.empty() || !daemons[kB].to_other.empty());
  }
  // Answers the last launch of `node`.
  void Answer(int node, absl::Status status = absl::OkStatus()) {
    ASSERT_FALSE(daemons[node].launches.empty());
    const Launch& launch = daemons[node].launches.back();
    engine(node).OnLaunchDone(now, launch.transfer, launch.attempt, status);
    Run();
  }
  void Advance(absl::Duration by) {
    now += by;
    for (int i : {kA, kB}) engine(i).OnTime(now);
    Run();
  }

  bool IsOver(int node, TransferId id) {
    for (const Ended& ended : daemons[node].ended) {
      if (ended.transfer == id) return true;
    }
    return false;
  }
  // How the transfer ended; expects that it ended exactly once.
  absl::Status StatusOf(int node, TransferId id) {
    std::vector<absl::Status> found;
    for (const Ended& ended : daemons[node].ended) {
      if (ended.transfer == id) found.push_back(ended.status);
    }
    EXPECT_EQ(found.size(), 1u) << "node " << node << " " << id;
    return found.empty() ? absl::UnknownError("did not end") : found[0];
  }
  void ExpectNothingLeft() {
    for (int i : {kA, kB}) {
      EXPECT_EQ(engine(i).view().in_flight(), 0u);
      EXPECT_EQ(engine(i).view().in_flight(kSession), 0u);
      EXPECT_EQ(engine(i).view().waiting_offers(), 0u);
      EXPECT_EQ(engine(i).view().waiting_pairs(), 0u);
      EXPECT_EQ(engine(i).view().groups(), 0u);
    }
  }

  absl::Time now = absl::UnixEpoch() + absl::Seconds(100);
  Daemon daemons[2];
};

// The last message that waits at `node`, as a T; fails the test if it is of another type.
template <typename T>
T LastMessage(TwoDaemons& two, int node) {
  two.Take(node);
  auto& list = two.daemons[node].to_other;
  if (list.empty() || !std::holds_alternative<T>(list.back())) {
    ADD_FAILURE() << "no such message at node " << node;
    return T();
  }
  return std::get<T>(list.back());
}

inline absl::Status Cancelled() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled by its client");
}
inline absl::Status Poisoned() {
  return Error(absl::StatusCode::kAborted, Reason::kPoisoned, "the kernel failed");
}
inline absl::Status RouteRefused() {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable, "no endpoint");
}

MATCHER_P2(Fails, code, reason,
           absl::StrCat("fails with ", absl::StatusCodeToString(code), "/",
                        std::string(ReasonName(reason)))) {
  *result_listener << arg.ToString();
  return arg.code() == code && HasReason(arg, reason);
}
MATCHER_P(Says, text, absl::StrCat("says '", text, "'")) {
  *result_listener << arg.ToString();
  return testing::Value(std::string(arg.message()), testing::HasSubstr(text));
}

}  // namespace ferry
