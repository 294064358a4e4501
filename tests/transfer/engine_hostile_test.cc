// SPDX-License-Identifier: Apache-2.0
// Every message of a peer, at every state of a half of ours, twice and after other messages: what
// makes no sense has no effect, nothing is ordered that this daemon's devices cannot do, and when
// the link is lost everything is given back. Device 0 of node-a and 2 of node-b are GPUs, 1 and 3
// are not.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "transfer/engine.h"

namespace ferry {
namespace {

constexpr SessionId kOwnSession{1};
constexpr PeerId kNodeA{0}, kNodeB{1};
constexpr uint64_t kBytes = 4096;
// Of a send of node-b's, as it says.
constexpr TransferId kTheirs{0x7700000001};

bool IsGpu(GlobalDeviceId device) { return device.value() % 2 == 0; }
Clique CliqueOfPair(bool gpus) {
  return gpus ? Clique{GlobalDeviceId(0), GlobalDeviceId(2)}
              : Clique{GlobalDeviceId(1), GlobalDeviceId(3)};
}
absl::Status Failed(Reason reason) {
  return Error(absl::StatusCode::kFailedPrecondition, reason, "it says so");
}

RouteTable AllRoutes() {
  RouteTable routes(kRoutes);
  for (RouteState& route : routes) route.available = true;
  auto& except = routes[static_cast<size_t>(Route::kNccl)].except;
  for (const uint64_t ours : {0, 1}) {
    for (const uint64_t theirs : {2, 3}) {
      if (ours == 0 && theirs == 2) continue;
      except[{GlobalDeviceId(ours), GlobalDeviceId(theirs)}] = "it moves memory of GPUs only";
    }
  }
  return routes;
}

// What the one half of ours is.
struct Kind {
  Side side = Side::kSend;
  bool prepared = false;
  bool gpus = false;
  bool defined = true;
};

// node-a, with one half of a transfer with node-b.
class NodeA {
 public:
  NodeA(const Kind& kind, std::vector<Route> order) : kind_(kind), engine_(Map(), Of(order)) {
    const Clique clique = CliqueOfPair(kind.gpus);
    TransferSpec spec;
    spec.side = kind.side;
    spec.key = {"job", clique.low, clique.high, "k"};
    if (kind.side == Side::kReceive) std::swap(spec.key.source, spec.key.destination);
    spec.bytes = kBytes;
    spec.layout = {{ArenaId(1), 0, kBytes}};
    spec.prepared = kind.prepared;
    spec.defined = kind.defined || kind.prepared;
    spec.defined_value = 1;
    spec.deadline = now_ + absl::Hours(1);
    EXPECT_TRUE(engine_.Check({&spec, 1}).empty());
    engine_.Post(now_, kOwnSession, 1, {&spec, 1});
    Carry();
  }

  void Up() {
    engine_.OnPeerUp(now_, kNodeB, AllRoutes(), {GlobalDeviceId(2)});
    Carry();
  }
  void Hear(PeerMessage message) {
    engine_.OnMessage(now_, kNodeB, std::move(message));
    Carry();
  }
  void AnswerAll(const absl::Status& status) {
    for (const Launch& launch : std::exchange(launches_, {})) {
      engine_.OnLaunchDone(now_, launch.transfer, launch.attempt, status);
    }
    for (const uint64_t group : std::exchange(groups_, {})) {
      engine_.OnGroupDone(now_, group, status);
    }
    Carry();
  }
  void End() {
    engine_.OnPeerLost(now_, kNodeB, absl::UnavailableError("reset"), true);
    engine_.EndSession(now_, kOwnSession, "it is over");
    Carry();
    for (int i = 0; i < 4 && (!launches_.empty() || !groups_.empty()); ++i) {
      AnswerAll(Failed(Reason::kRouteUnavailable));
    }
    EXPECT_EQ(ended_, 1u);
    EXPECT_EQ(engine_.view().in_flight(), 0u);
    EXPECT_EQ(engine_.view().waiting_offers(), 0u);
    EXPECT_EQ(engine_.view().waiting_pairs(), 0u);
    EXPECT_EQ(engine_.view().groups(), 0u);
  }
  // The source's id, by which both daemons name the transfer.
  TransferId id() const {
    return kind_.side == Side::kSend ? MakeTransferId(kOwnSession, 1) : kTheirs;
  }

 private:
  static DeviceMap Map() {
    DeviceMap map;
    map.self = kNodeA;
    for (uint64_t device = 0; device < 4; ++device) {
      map.owner[GlobalDeviceId(device)] = PeerId(static_cast<uint32_t>(device / 2));
    }
    map.node_names = {"node-a", "node-b"};
    map.gpus = {GlobalDeviceId(0)};
    return map;
  }
  static TransferEngine::Options Of(std::vector<Route> order) {
    TransferEngine::Options options;
    options.order = std::move(order);
    return options;
  }

  void ExpectGpus(const Clique& clique, const char* what) {
    EXPECT_TRUE(IsGpu(clique.low) && IsGpu(clique.high))
        << what << " of " << clique.low << " and " << clique.high;
  }
  void Carry() {
    for (Outbox out = engine_.TakeOutbox(); !out.empty(); out = engine_.TakeOutbox()) {
      for (Launch& launch : out.launches) {
        if (launch.route == Route::kNccl) {
          ExpectGpus(CliqueOf(launch.device, launch.remote_device), "a launch by nccl");
        }
        if (launch.armed.has_value()) {
          EXPECT_LE(launch.armed->slot, kPreparedSlots);
        }
        launches_.push_back(std::move(launch));
      }
      for (const GroupOrder& order : out.groups) {
        if (const auto* open = std::get_if<CommunicatorOpen>(&order)) {
          ExpectGpus(open->clique, "a communicator");
          if (open->unique_id.empty()) {
            engine_.OnCommunicatorId(now_, open->clique, open->attempt, "unique");
          }
          engine_.OnCommunicatorOpened(now_, open->clique, open->attempt);
        } else if (const auto* launch = std::get_if<GroupLaunch>(&order)) {
          ExpectGpus(launch->clique, "a group");
          groups_.push_back(launch->ticket);
        }
      }
      for (const auto& [transfer, why] : out.aborts) {
        std::erase_if(launches_, [&, id = transfer, status = why](const Launch& launch) {
          if (launch.transfer != id) return false;
          aborted_.emplace_back(id, launch.attempt, status);
          return true;
        });
      }
      ended_ += out.ended.size();
      for (const auto& [id, attempt, why] : std::exchange(aborted_, {})) {
        engine_.OnLaunchDone(now_, id, attempt, why);
      }
    }
  }

  const Kind kind_;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  TransferEngine engine_;
  std::vector<Launch> launches_;
  std::vector<uint64_t> groups_;
  std::vector<std::tuple<TransferId, uint32_t, absl::Status>> aborted_;
  size_t ended_ = 0;
};

using Messages = std::vector<std::pair<std::string, PeerMessage>>;

Offer OfferOf(const Kind& kind, bool ready, uint32_t slot) {
  const Clique clique = CliqueOfPair(kind.gpus);
  Offer offer;
  offer.transfer = kTheirs;
  offer.key = {"job", clique.high, clique.low, "k"};
  offer.bytes = kBytes;
  offer.layout = {{ArenaId(9), 0, kBytes}};
  offer.ready = ready;
  offer.prepared = kind.prepared;
  offer.slot = slot;
  return offer;
}

// All 17 kinds, in every variant that a half could take for its own.
Messages All(TransferId id, const Kind& kind) {
  Messages all;
  const auto add = [&](std::string name, PeerMessage message) {
    all.emplace_back(std::move(name), std::move(message));
  };
  for (const TransferId transfer : {id, TransferId(0xdead)}) {
    add("matched", Matched{transfer});
    add("ready", Ready{transfer});
    for (int route = 0; route < kRoutes; ++route) {
      for (const uint32_t attempt : {1u, 2u, ~0u}) {
        add(absl::StrCat("go ", route, " attempt ", attempt),
            Go{transfer, attempt, static_cast<Route>(route), 5, 0});
      }
      add(absl::StrCat("done ", route),
          Done{transfer, absl::OkStatus(), static_cast<Route>(route)});
    }
    add("done badly", Done{transfer, Failed(Reason::kRouteUnavailable), Route::kUnspecified});
    add("withdraw", Withdraw{transfer, Failed(Reason::kPoisoned)});
    add("withdraw late", Withdraw{transfer, Failed(Reason::kExecuting)});
    add("withdraw without a reason", Withdraw{transfer, absl::OkStatus()});
    add("send failed", SendFailed{transfer, 1, Failed(Reason::kRouteUnavailable)});
    add("hand over", HandOver{transfer, 0, true});
    add("take back", TakeBack{transfer});
  }
  const NearTexts texts(100, std::string(1000, 'x'));
  add("withdraw alone", Withdraw{id, Failed(Reason::kWaitingForPeer)});
  add("done alone", Done{id, Failed(Reason::kWaitingForPeer), Route::kUnspecified, texts});
  add("sought", Sought{id, texts});
  add("draining", Draining{true, absl::InfiniteDuration()});
  add("serving", Draining{});
  for (const uint64_t device : {0u, 1u, 2u, 99u}) {
    for (const uint32_t count : {0u, 1u, ~0u}) {
      add(absl::StrCat("members ", device, " ", count),
          MembersTold{GlobalDeviceId(device), "job", count, "m"});
    }
  }
  add("seek", Seek{id, OfferOf(kind, true, 0).key});
  for (const uint32_t slot : {0u, 1u, kPreparedSlots}) {
    add(absl::StrCat("offer at slot ", slot), OfferOf(kind, slot == 1, slot));
  }
  for (const bool gpus : {true, false}) {
    for (const bool turned : {false, true}) {
      Clique clique = CliqueOfPair(gpus);
      if (turned) std::swap(clique.low, clique.high);
      const std::string of = absl::StrCat(gpus ? " of GPUs" : " of hosts", turned ? " turned" : "");
      for (const uint32_t slot : {0u, 1u}) {
        for (const bool to_low : {false, true}) {
          const PairName pair{to_low, slot == 0 ? id : TransferId(5), slot};
          const std::string which = absl::StrCat(of, " ", slot, to_low ? " to low" : "");
          add("group" + which, Group{clique, 0, 1, {{pair, 0, kBytes}}});
          add("fire" + which, Fire{clique, pair, 0, true});
        }
      }
      add("group of nothing" + of, Group{clique, 0, 2, {}});
      add("granted" + of, Granted{clique, 0, 1, {}});
      add("granted but one" + of, Granted{clique, 0, 1, {0}});
      add("granted but two" + of, Granted{clique, 0, 1, {7, 7}});
      add("group failed" + of, GroupFailed{clique, 0, 1, Failed(Reason::kInternal)});
      add("comm failed" + of, GroupFailed{clique, 0, 0, Failed(Reason::kRouteUnavailable)});
      add("over" + of, AttemptOver{clique, 0, 0, absl::OkStatus()});
      add("over badly" + of, AttemptOver{clique, ~0u, 1, Failed(Reason::kInternal)});
      add("evict" + of, Evict{clique, 0, true});
      add("open" + of, OpenComm{clique, 1, "unique"});
      add("warm" + of, WarmComm{clique});
    }
  }
  return all;
}

// What brings a half to its states: said before.
std::vector<std::pair<std::string, std::vector<PeerMessage>>> States(const Kind& kind,
                                                                     TransferId id) {
  if (kind.side == Side::kReceive) {
    return {{"waiting", {}},
            {"matched", {OfferOf(kind, false, 1)}},
            {"started", {OfferOf(kind, true, 1)}},
            {"started without a slot", {OfferOf(kind, true, 0)}},
            {"made ready", {OfferOf(kind, false, 1), Ready{id}}}};
  }
  return {{"offered", {}},
          {"matched", {Matched{id}}},
          {"launched by ucx", {Matched{id}, Go{id, 1, Route::kUcx, 5, 0}}},
          {"armed on mapped", {Go{id, 1, Route::kMapped, 0, 0}}},
          {"armed on nccl", {Go{id, 1, Route::kNccl, 5, 0}}},
          {"handed", {Matched{id}, HandOver{id, 0, true}}},
          {"over", {Done{id, absl::OkStatus(), Route::kMapped}}}};
}

struct Case {
  const char* name;
  Kind kind;
};

class EngineHostileTest : public ::testing::TestWithParam<Case> {};

std::vector<Case> Cases() {
  return {{"Send", {Side::kSend, false, false, true}},
          {"SendOfAGpu", {Side::kSend, false, true, true}},
          {"SendNotDefined", {Side::kSend, false, true, false}},
          {"PreparedSend", {Side::kSend, true, false, true}},
          {"PreparedSendOfAGpu", {Side::kSend, true, true, true}},
          {"Receive", {Side::kReceive, false, false, true}},
          {"ReceiveOfAGpu", {Side::kReceive, false, true, true}},
          {"PreparedReceive", {Side::kReceive, true, false, true}},
          {"PreparedReceiveOfAGpu", {Side::kReceive, true, true, true}}};
}

INSTANTIATE_TEST_SUITE_P(, EngineHostileTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(EngineHostileTest, EveryMessageAtEveryStateAlsoAfterOthers) {
  // Of the pairs of messages one in so many, others at each state.
  constexpr size_t kOneIn = 8;
  size_t turn = 0;
  const Kind& kind = GetParam().kind;
  const std::vector<Route> orders[] = {{Route::kMapped, Route::kUcx, Route::kNccl},
                                       {Route::kNccl, Route::kUcx, Route::kMapped}};
  for (const std::vector<Route>& order : orders) {
    const TransferId id = NodeA(kind, order).id();
    const Messages all = All(id, kind);
    for (const auto& [state, before] : States(kind, id)) {
      ++turn;
      for (size_t i = 0; i < all.size(); ++i) {
        for (size_t j = 0; j < all.size(); ++j) {
          if (i != j && (i + 7 * j + turn) % kOneIn != 0) continue;
          const auto& [first, one] = all[i];
          const auto& [second, other] = all[j];
          NodeA node(kind, order);
          node.Up();
          for (const PeerMessage& message : before) node.Hear(message);
          node.Hear(one);
          node.Hear(other);
          node.AnswerAll(absl::OkStatus());
          node.End();
          if (HasFailure()) FAIL() << state << ", then " << first << ", then " << second;
        }
      }
    }
  }
}

// Before the link is up, and after it was lost, nothing is heard.
TEST_P(EngineHostileTest, NothingIsHeardWithoutALink) {
  const Kind& kind = GetParam().kind;
  NodeA node(kind, {Route::kMapped, Route::kUcx, Route::kNccl});
  for (const auto& [name, message] : All(node.id(), kind)) {
    node.Hear(message);
    if (HasFailure()) FAIL() << name;
  }
  node.End();
}

}  // namespace
}  // namespace ferry
