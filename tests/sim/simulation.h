// SPDX-License-Identifier: Apache-2.0
// Several TransferEngines in one process under one seed: a virtual clock, links that delay, break
// and come back, clients that post, define late, cancel and die, lanes that take their time, fail,
// refuse a route or hang. What the engines order is checked as it comes; what must hold at the end
// is checked by Run.
//
// Single-threaded. The same options give the same story, whatever the hash tables do.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "transfer/engine.h"

namespace ferry {

struct SimulationOptions {
  uint64_t seed = 1;
  int engines = 3;
  int steps = 300;  // of the clients
  bool verbose = false;
};

class Simulation {
 public:
  explicit Simulation(SimulationOptions options);
  // What went wrong; empty if all is well.
  std::vector<std::string> Run();

 private:
  // What the model knows of one posted half. Every half has an arena of its own, so that a launch's
  // ranges tell which halves it is about.
  struct HalfModel {
    int node = 0;
    TransferId id;
    TransferSpec spec;
    uint64_t scenario = 0;
    bool defined = false;
    bool watched = false;
    bool ended = false;
    absl::Status status;
    absl::Time ended_at;
    uint32_t attempt = 0;
    bool outstanding = false;
    bool aborted = false;
    LaunchRole role = LaunchRole::kCopy;
    uint64_t tag = 0;
    int copied_by_peer = 0;  // one-sided copies out of it that run now
    uint64_t other = 0;      // the half it was launched with, once known
  };
  // What clients meant with one key: a send, a receive or both.
  struct Scenario {
    uint64_t send = 0;  // index into halves_, 0 for none
    uint64_t receive = 0;
    bool mismatch = false;
    bool disturbed =
        false;  // cancelled, poisoned, a client died, a launch was made to fail or hang
    bool route_may_fail = false;
    bool key_taken = false;  // by a later scenario
    uint64_t losses = 0;     // of the link when the first half was posted
  };
  struct Node {
    std::unique_ptr<TransferEngine> engine;
    std::vector<uint32_t> sessions;
    std::map<uint32_t, uint64_t> sequences;
    size_t open = 0;
    bool pump_pending = false;
    absl::Time timer = absl::InfiniteFuture();
  };
  // One direction or end of a link, from `node`'s view.
  struct LinkEnd {
    bool up = false;          // the engine was told so
    absl::Time last_arrival;  // at this end, to keep the order
  };
  struct Link {
    uint64_t generation = 0;
    uint64_t losses = 0;
    bool connected = false;
    bool connecting = false;
    int unaware = 0;  // ends that have yet to notice the last loss
    LinkEnd ends[2];
  };
  struct Rendezvous {  // both halves of one ucx launch
    uint64_t send = 0;
    uint64_t receive = 0;
  };

  // --- Clock and dice.
  uint64_t Random(uint64_t below);
  bool Chance(int percent) { return Random(100) < static_cast<uint64_t>(percent); }
  absl::Duration Delay(int max_ms);
  void At(absl::Time when, std::function<void()> event);
  void After(absl::Duration delay, std::function<void()> event) {
    At(now_ + delay, std::move(event));
  }
  void Say(absl::string_view text);
  void Fail(absl::string_view text);

  // --- Engines and network (simulation.cc).
  void Touched(int node);  // the engine was called: take its outbox, now or soon
  void Pump(int node);
  Link& LinkOf(int a, int b);
  static int EndOf(int node, int other) { return node < other ? 0 : 1; }
  void Wanted(int node, int peer);
  void Connect(int a, int b);
  void BreakLink(int a, int b);
  void Carry(int from, int to, PeerMessage message);
  absl::Time Arrival(int from, int to);
  RouteTable RandomRoutes();

  // --- Clients (clients.cc).
  void ClientStep();
  void PostScenario();
  void PostHalf(uint64_t scenario, TransferSpec spec, bool define_later);
  void Define(uint64_t half);
  void CancelSome();
  void KillSession();
  int OwnerOf(GlobalDeviceId device) const { return static_cast<int>(device.value() / 2); }

  // --- Lanes and checks (lanes.cc, checks.cc).
  void OnLaunch(int node, const Launch& launch);
  void Answer(uint64_t half, uint32_t attempt, absl::Status status, absl::Duration delay);
  void OnAbort(int node, TransferId id, const absl::Status& why);
  void TryRendezvous(int destination, uint64_t tag);
  void OnEnded(int node, const Ended& ended);
  void CheckEnd();
  void CheckNothingRemembered();
  void CheckScenario(uint64_t index, const Scenario& scenario);
  HalfModel* HalfAt(int node, TransferId id);
  uint64_t HalfOfArena(const RangeList& ranges);
  std::string NameOf(const HalfModel& half) const;

  const SimulationOptions options_;
  uint64_t random_state_;
  absl::Time now_;
  uint64_t next_event_ = 0;
  std::map<std::pair<absl::Time, uint64_t>, std::function<void()>> events_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, int>, Link> links_;
  std::vector<HalfModel> halves_;  // [0] is none; the index is the arena
  std::vector<Scenario> scenarios_;
  std::map<std::pair<int, uint64_t>, uint64_t> by_id_;
  std::map<std::pair<int, uint64_t>, Rendezvous> rendezvous_;
  std::vector<std::string> failures_;
  bool calm_ = false;  // the clients are done: links no longer break
};

}  // namespace ferry
