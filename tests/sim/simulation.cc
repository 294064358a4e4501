// SPDX-License-Identifier: Apache-2.0
#include "simulation.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace ferry {
namespace {

std::string Describe(const PeerMessage& message) {
  struct Visitor {
    std::string operator()(const Offer& m) {
      return absl::StrCat("Offer ", m.transfer.value(), " ", PrintableKey(m.key.key),
                          m.ready ? "" : " (not ready)");
    }
    std::string operator()(const Matched& m) {
      return absl::StrCat("Matched ", m.transfer.value());
    }
    std::string operator()(const Ready& m) { return absl::StrCat("Ready ", m.transfer.value()); }
    std::string operator()(const Go& m) {
      return absl::StrCat("Go ", m.transfer.value(), " attempt ", m.attempt, " tag ", m.tag);
    }
    std::string operator()(const Done& m) {
      return absl::StrCat("Done ", m.transfer.value(), " ", m.status.ToString());
    }
    std::string operator()(const Withdraw& m) {
      return absl::StrCat("Withdraw ", m.transfer.value(), " ", m.status.ToString());
    }
    std::string operator()(const SendFailed& m) {
      return absl::StrCat("SendFailed ", m.transfer.value(), " attempt ", m.attempt, " ",
                          m.status.ToString());
    }
  };
  return std::visit(Visitor(), message);
}

}  // namespace

Simulation::Simulation(SimulationOptions options)
    : options_(options),
      random_state_(options.seed * 0x9e3779b97f4a7c15 + 1),
      now_(absl::UnixEpoch() + absl::Seconds(1000)),
      halves_(1) {
  DeviceMap map;
  for (int i = 0; i < options.engines; ++i) {
    map.node_names.push_back(absl::StrCat("node-", i));
    map.owner[GlobalDeviceId(2 * i)] = PeerId(i);
    map.owner[GlobalDeviceId(2 * i + 1)] = PeerId(i);
  }
  TransferEngine::Options engine_options;
  if (Chance(30)) engine_options.order = {Route::kLocal, Route::kUcx, Route::kMapped};
  for (int i = 0; i < options.engines; ++i) {
    map.self = PeerId(i);
    Node node;
    node.engine = std::make_unique<TransferEngine>(map, engine_options);
    node.sessions = {1, 2};
    nodes_.push_back(std::move(node));
  }
}

uint64_t Simulation::Random(uint64_t below) {  // splitmix64
  uint64_t z = random_state_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return (z ^ (z >> 31)) % below;
}

absl::Duration Simulation::Delay(int max_ms) {
  return absl::Microseconds(1 + Random(static_cast<uint64_t>(max_ms) * 1000));
}

void Simulation::At(absl::Time when, std::function<void()> event) {
  events_.emplace(std::make_pair(when, next_event_++), std::move(event));
}

void Simulation::Say(absl::string_view text) {
  if (!options_.verbose) return;
  printf("%10.3f ms  %s\n",
         absl::ToDoubleMilliseconds(now_ - absl::UnixEpoch() - absl::Seconds(1000)),
         std::string(text).c_str());
}

void Simulation::Fail(absl::string_view text) {
  Say(absl::StrCat("FAILED: ", text));
  failures_.push_back(absl::StrCat(
      "at ", absl::ToDoubleMilliseconds(now_ - absl::UnixEpoch() - absl::Seconds(1000)),
      " ms: ", text));
}

std::vector<std::string> Simulation::Run() {
  absl::Time when = now_;
  for (int i = 0; i < options_.steps; ++i) {
    when += Delay(6);
    At(when, [this] { ClientStep(); });
  }
  At(when, [this] { calm_ = true; });
  while (!events_.empty() && failures_.size() < 10) {
    auto event = events_.begin();
    now_ = event->first.first;
    std::function<void()> act = std::move(event->second);
    events_.erase(event);
    act();
  }
  if (failures_.empty()) CheckEnd();
  return failures_;
}

void Simulation::Touched(int node) {
  if (nodes_[node].pump_pending) return;
  if (Chance(70)) return Pump(node);
  nodes_[node].pump_pending = true;
  After(Delay(2), [this, node] { Pump(node); });
}

void Simulation::Pump(int index) {
  Node& node = nodes_[index];
  node.pump_pending = false;
  Outbox out = node.engine->TakeOutbox();
  for (const Watch& watch : out.watches) {
    HalfModel* half = HalfAt(index, watch.transfer);
    if (half == nullptr || half->watched || half->spec.defined) {
      Fail(absl::StrCat("a watch that makes no sense: ", watch.transfer.value()));
      continue;
    }
    half->watched = true;
  }
  for (TransferId id : out.unwatch) {
    HalfModel* half = HalfAt(index, id);
    // One that fired while the outbox waited is no longer there: fine.
    if (half == nullptr || half->spec.defined) {
      Fail(absl::StrCat("unwatch without a watch: ", id.value()));
      continue;
    }
    half->watched = false;
  }
  for (const Launch& launch : out.launches) OnLaunch(index, launch);
  for (const auto& [id, why] : out.aborts) OnAbort(index, id, why);
  for (auto& [peer, message] : out.messages) {
    Carry(index, static_cast<int>(peer.value()), std::move(message));
  }
  for (PeerId peer : out.wanted_peers) Wanted(index, static_cast<int>(peer.value()));
  for (const Ended& ended : out.ended) OnEnded(index, ended);
  if (node.engine->in_flight() != node.open) {
    Fail(absl::StrCat("node-", index, " has ", node.engine->in_flight(), " in flight, not ",
                      node.open));
  }
  // Defined while the watch was still on its way: the lane sees that at once.
  for (const Watch& watch : out.watches) {
    const HalfModel* half = HalfAt(index, watch.transfer);
    if (half != nullptr && half->watched && half->defined) {
      const uint64_t which = static_cast<uint64_t>(half - halves_.data());
      After(Delay(1), [this, which] { Define(which); });
    }
  }
  const absl::Time next = node.engine->NextDeadline();
  if (next < node.timer) {
    node.timer = next;
    At(std::max(now_, next + Delay(1)), [this, index] {
      nodes_[index].timer = absl::InfiniteFuture();
      nodes_[index].engine->OnTime(now_);
      Pump(index);
    });
  }
}

Simulation::Link& Simulation::LinkOf(int a, int b) {
  return links_[{std::min(a, b), std::max(a, b)}];
}

RouteTable Simulation::RandomRoutes() {
  RouteTable routes(kRoutes);
  for (RouteState& route : routes) route.why = "the dice say no";
  routes[static_cast<size_t>(Route::kMapped)].available = Chance(50);
  routes[static_cast<size_t>(Route::kUcx)].available = Chance(90);
  return routes;
}

void Simulation::Wanted(int node, int peer) {
  if (node == peer) return Fail("an engine wants a link to itself");
  Link& link = LinkOf(node, peer);
  if (link.connected || link.connecting) return;
  link.connecting = true;
  After(Delay(30), [this, node, peer] { Connect(node, peer); });
}

void Simulation::Connect(int a, int b) {
  Link& link = LinkOf(a, b);
  if (link.unaware > 0 || Chance(20)) {
    Say(absl::StrCat("node-", a, " cannot reach node-", b));
    nodes_[a].engine->OnPeerLost(now_, PeerId(b), absl::UnavailableError("connection refused"),
                                 false);
    Touched(a);
    After(Delay(60), [this, a, b] { Connect(a, b); });
    return;
  }
  link.connecting = false;
  link.connected = true;
  const uint64_t generation = ++link.generation;
  for (const auto& [from, to] : {std::make_pair(a, b), std::make_pair(b, a)}) {
    At(Arrival(from, to), [this, from = from, to = to, generation] {
      Link& link = LinkOf(from, to);
      if (link.generation != generation) return;
      Say(absl::StrCat("node-", to, ": link to node-", from, " is up"));
      link.ends[EndOf(to, from)].up = true;
      nodes_[to].engine->OnPeerUp(now_, PeerId(from), RandomRoutes());
      Touched(to);
    });
  }
}

void Simulation::BreakLink(int a, int b) {
  Link& link = LinkOf(a, b);
  if (!link.connected) return;
  Say(absl::StrCat("the link of node-", a, " and node-", b, " breaks"));
  link.connected = false;
  ++link.generation;  // what is on its way is lost
  ++link.losses;
  for (const auto& [node, other] : {std::make_pair(a, b), std::make_pair(b, a)}) {
    if (!link.ends[EndOf(node, other)].up) continue;
    ++link.unaware;
    After(Delay(30), [this, node = node, other = other] {
      Link& link = LinkOf(node, other);
      Say(absl::StrCat("node-", node, ": link to node-", other, " is lost"));
      link.ends[EndOf(node, other)].up = false;
      --link.unaware;
      nodes_[node].engine->OnPeerLost(now_, PeerId(other), absl::UnavailableError("reset by peer"),
                                      true);
      Touched(node);
    });
  }
  // A side that still wants the link has said so before; the dialler keeps trying.
  if (!link.connecting) {
    link.connecting = true;
    After(Delay(60), [this, a, b] { Connect(a, b); });
  }
}

absl::Time Simulation::Arrival(int from, int to) {
  LinkEnd& end = LinkOf(from, to).ends[EndOf(to, from)];
  end.last_arrival =
      std::max(end.last_arrival + absl::Nanoseconds(1), now_ + Delay(Chance(10) ? 25 : 3));
  return end.last_arrival;
}

void Simulation::Carry(int from, int to, PeerMessage message) {
  Link& link = LinkOf(from, to);
  if (!link.ends[EndOf(from, to)].up) {
    return Fail(absl::StrCat("node-", from,
                             " sends over a link that it knows is down: ", Describe(message)));
  }
  Say(absl::StrCat("node-", from, " -> node-", to, ": ", Describe(message)));
  const uint64_t generation = link.generation;
  if (!link.connected) return;
  auto boxed = std::make_shared<PeerMessage>(std::move(message));  // std::function wants copies
  At(Arrival(from, to), [this, from, to, generation, boxed] {
    if (LinkOf(from, to).generation != generation) return;
    nodes_[to].engine->OnMessage(now_, PeerId(from), std::move(*boxed));
    Touched(to);
  });
}

}  // namespace ferry
