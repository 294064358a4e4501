// SPDX-License-Identifier: Apache-2.0
// Clock, dice, engines and the story.
#include "tests/sim/model/simulation.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace ferry {

void SimulationCount::Add(const SimulationCount& other) {
  posted += other.posted;
  ended_ok += other.ended_ok;
  ended_badly += other.ended_badly;
  groups += other.groups;
  messages += other.messages;
  fired += other.fired;
  refused += other.refused;
  lost += other.lost;
  doubled += other.doubled;
  reordered += other.reordered;
  early += other.early;
  resets += other.resets;
  partitions += other.partitions;
  splits += other.splits;
  crashes += other.crashes;
  clients += other.clients;
  launches += other.launches;
  evictions += other.evictions;
  drains += other.drains;
  removals += other.removals;
  told += other.told;
  deserted += other.deserted;
  convoys += other.convoys;
  apart += other.apart;
}

std::string SimulationCount::ToString() const {
  return absl::StrFormat(
      "halves   %d posted, %d ended OK, %d with an error, %d of them by a full queue;\n"
      "         %d after their partner had ended, %d where the last member was gone;\n"
      "         %d firings of prepared pairs that nobody disturbed\n"
      "traffic  %d messages, %d group launches; %d launches of convoys, %d offers of them taken "
      "apart\n"
      "faults   %d in all: %d segments lost, %d doubled, %d reordered; %d frames early;\n"
      "         %d link resets, %d partitions, in %d groups of daemons;\n"
      "         %d daemons crashed; %d clients died, cancelled or poisoned;\n"
      "         %d launches failed, refused, hung or late; %d communicators evicted;\n"
      "         %d drains that were taken back; %d peers were taken off a list",
      posted, ended_ok, ended_badly, refused, told, deserted, fired, messages, groups, convoys,
      apart, faults(), lost, doubled, reordered, early, resets, partitions, splits, crashes,
      clients, launches, evictions, drains, removals);
}

Simulation::Simulation(SimulationOptions options)
    : options_(options),
      random_state_(options.seed * 0x9e3779b97f4a7c15 + 1),
      now_(absl::UnixEpoch() + absl::Seconds(1000)),
      halves_(1) {
  const auto some = [&](int share, int percent) { return Chance(share) ? percent : 0; };
  profile_.wire = some(60, Chance(30) ? 30 : 3);
  profile_.partition = some(40, 2);
  profile_.crash = some(40, 1);
  profile_.evict = some(50, 10);
  profile_.group_fault = some(40, 6);
  profile_.slow_lane = some(40, 40);
  profile_.many = some(50, 80);
  profile_.apart = Chance(60) ? 80 : 10;
  for (int i = 0; i < options.daemons; ++i) {
    map_.node_names.push_back(absl::StrCat("node-", i));
    for (uint64_t device : {2 * i, 2 * i + 1}) {
      map_.owner[GlobalDeviceId(device)] = PeerId(i);
      if (Chance(profile_.slow_lane)) slow_lanes_.insert(device);
    }
  }
  const std::vector<Route> orders[] = {
      {Route::kLocal, Route::kMapped, Route::kUcx},
      {Route::kLocal, Route::kUcx, Route::kMapped},
      {Route::kLocal, Route::kMapped, Route::kTcp, Route::kUcx, Route::kNccl},
      {Route::kLocal, Route::kTcp, Route::kNccl},
      {Route::kLocal, Route::kMapped, Route::kUcx, Route::kNccl},
      {Route::kLocal, Route::kNccl, Route::kUcx, Route::kMapped},
      {Route::kLocal, Route::kNccl},
  };
  engine_options_.order = orders[std::min<uint64_t>(Random(10), 6)];
  // Bounds that are met; else they would be bounds of nothing.
  if (Chance(40)) engine_options_.bounds.offers_per_peer = 1 + Random(4);
  if (Chance(20)) engine_options_.tombstones_per_peer = 1 + Random(4);
  // Sessions and deadlines end in parts.
  if (Chance(50)) engine_options_.ends_at_once = 1 + Random(3);
  const bool small_groups = Chance(30);
  engine_options_.cliques.cutting.group_bytes = small_groups ? 32 << 10 : 256 << 10;
  engine_options_.cliques.cutting.chunk_bytes = small_groups ? 16 << 10 : 32 << 10;
  engine_options_.cliques.cutting.direct_bytes = 4 << 10;
  engine_options_.cliques.cutting.group_chunks = small_groups ? 2 : 8;
  // Virtual lanes are slow.
  engine_options_.bounds.group_time = absl::Milliseconds(Chance(50) ? 100 : 4);
  engine_options_.no_convoys_for = absl::Milliseconds(10);
  engine_options_.no_convoys_after_refusal = absl::Milliseconds(50);
  engine_options_.cliques.group_deadline = absl::Seconds(1);
  engine_options_.cliques.grant_deadline = absl::Seconds(5);
  engine_options_.cliques.open_deadline = absl::Seconds(1);
  gpus_ = Chance(60);  // all devices, or none: priors are of GPUs
  nodes_.resize(options.daemons);
  const uint64_t hosts = 1 + Random(options.daemons);
  for (int i = 0; i < options.daemons; ++i) {
    nodes_[i].host = Random(hosts);
    Start(i);
  }
}

void Simulation::Start(int index) {
  Node& node = nodes_[index];
  map_.self = PeerId(index);
  map_.gpus = GpusOf(index);
  node.engine = std::make_unique<TransferEngine>(map_, engine_options_);
  node.sessions = {1, 2};
  node.sequences.clear();
  node.strangers.clear();
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
  if (!options_.verbose && !options_.story) return;
  std::string line = absl::StrFormat(
      "%10.3f ms  %s", absl::ToDoubleMilliseconds(now_ - absl::UnixEpoch() - absl::Seconds(1000)),
      text);
  if (options_.verbose) printf("%s\n", line.c_str());
  if (options_.story) story_.push_back(std::move(line));
}

void Simulation::Fail(absl::string_view text) {
  Say(absl::StrCat("FAILED: ", text));
  failures_.push_back(absl::StrCat(
      "at ", absl::ToDoubleMilliseconds(now_ - absl::UnixEpoch() - absl::Seconds(1000)),
      " ms: ", text));
}

std::string Simulation::Story() const {
  if (failures_.empty()) return "";
  // The two sides: of the scenario that the failure names, else the nodes that it names, else all.
  const auto number_after = [](absl::string_view text, absl::string_view word, size_t from) {
    const size_t at = text.find(word, from);
    if (at == absl::string_view::npos) return std::make_pair(-1, at);
    const size_t begin = at + word.size();
    size_t end = begin;
    while (end < text.size() && absl::ascii_isdigit(text[end])) ++end;
    int number = -1;
    return absl::SimpleAtoi(text.substr(begin, end - begin), &number) ? std::make_pair(number, end)
                                                                      : std::make_pair(-1, end);
  };
  std::set<int> sides;
  const std::string& failure = failures_[0];
  const int scenario = number_after(failure, "scenario ", 0).first;
  if (scenario >= 0 && static_cast<size_t>(scenario) < scenarios_.size()) {
    for (uint64_t half : {scenarios_[scenario].send, scenarios_[scenario].receive}) {
      if (half == 0) continue;
      sides.insert(OwnerOf(halves_[half].spec.key.source));
      sides.insert(OwnerOf(halves_[half].spec.key.destination));
    }
  }
  for (size_t at = 0; sides.empty() || (sides.size() < 2 && scenario < 0);) {
    const auto [node, next] = number_after(failure, "node-", at);
    if (node < 0) break;
    sides.insert(node);
    at = next;
  }
  if (sides.empty()) {
    for (int node = 0; node < static_cast<int>(nodes_.size()); ++node) sides.insert(node);
  }
  std::string story = "the story of";
  for (int side : sides) absl::StrAppend(&story, " node-", side);
  absl::StrAppend(&story, "\n");
  for (const std::string& line : story_) {
    bool theirs = absl::StrContains(line, "FAILED: ");
    for (size_t at = 0; !theirs;) {
      const auto [node, next] = number_after(line, "node-", at);
      if (node < 0) break;
      theirs = sides.contains(node);
      at = next;
    }
    if (theirs) absl::StrAppend(&story, line, "\n");
  }
  return story;
}

std::vector<std::string> Simulation::Run() {
  absl::Time when = now_;
  for (int i = 0; i < options_.steps; ++i) {
    when += Delay(6);
    At(when, [this] { ClientStep(); });
    At(when, [this] { FaultStep(); });
  }
  At(when, [this] { calm_ = true; });
  uint64_t steps = 0;
  const uint64_t enough = uint64_t{10'000} * (options_.steps + options_.daemons);
  while (!events_.empty() && failures_.size() < 10) {
    auto event = events_.begin();
    now_ = event->first.first;
    std::function<void()> act = std::move(event->second);
    events_.erase(event);
    act();
    if (++steps > enough) {
      Fail("it does not become idle");
      break;
    }
  }
  if (failures_.empty()) CheckEnd();
  return failures_;
}

void Simulation::Touched(int node) {
  CheckBounds(node);
  if (nodes_[node].pump_pending) return;
  if (Chance(70)) return Pump(node);
  nodes_[node].pump_pending = true;
  After(Delay(2), [this, node, life = nodes_[node].life] {
    if (nodes_[node].life == life) Pump(node);
  });
}

void Simulation::Pump(int index) {
  Node& node = nodes_[index];
  node.pump_pending = false;
  Outbox out = node.engine->TakeOutbox();
  for (const WordWatch& watch : out.watches) {
    HalfModel* half = HalfAt(index, watch.transfer);
    if (half == nullptr || half->watched || half->spec.defined != watch.prepared ||
        half->spec.prepared != watch.prepared) {
      Fail(absl::StrCat("node-", index, ": a watch that makes no sense: ", watch.transfer.value()));
      continue;
    }
    half->watched = true;
  }
  for (TransferId id : out.unwatch) {
    HalfModel* half = HalfAt(index, id);
    // One that fired while the outbox waited is no longer there: fine.
    if (half == nullptr || (half->spec.defined && !half->spec.prepared)) {
      Fail(absl::StrCat("node-", index, ": unwatch without a watch: ", id.value()));
      continue;
    }
    half->watched = false;
  }
  for (const Launch& launch : out.launches) OnLaunch(index, launch);
  for (const auto& [id, why] : out.aborts) OnAbort(index, id, why);
  for (const GroupOrder& order : out.groups) {
    if (const CommunicatorOpen* open = std::get_if<CommunicatorOpen>(&order)) {
      OnCommunicatorOpen(index, *open);
    } else if (const GroupLaunch* launch = std::get_if<GroupLaunch>(&order)) {
      OnGroupLaunch(index, *launch);
    } else if (std::holds_alternative<GroupAhead>(order)) {
      // Lanes that do nothing with it are as good.
    } else if (const auto* closing = std::get_if<CommunicatorClosing>(&order)) {
      OnCommunicatorClosing(index, *closing);
    } else {
      OnCommunicatorEnd(index, std::get<CommunicatorEnd>(order));
    }
  }
  std::map<PeerId, std::vector<PeerMessage>> messages;
  for (auto& [peer, message] : out.messages) messages[peer].push_back(std::move(message));
  for (auto& [peer, said] : messages) {
    Carry(index, static_cast<int>(peer.value()), std::move(said));
  }
  for (const Fired& fired : out.fired) OnFired(index, fired);
  for (PeerId peer : out.wanted_peers) Wanted(index, static_cast<int>(peer.value()));
  for (const Ended& ended : out.ended) OnEnded(index, ended);
  CheckNode(index);
  // Defined while the watch was still on its way: the lane sees that at once.
  for (const WordWatch& watch : out.watches) {
    const HalfModel* half = HalfAt(index, watch.transfer);
    if (half != nullptr && half->watched && half->defined && !AtGoal(*half)) {
      const uint64_t which = static_cast<uint64_t>(half - halves_.data());
      After(Delay(1), [this, which] { Define(which); });
    }
  }
  const absl::Time next = node.engine->NextDeadline();
  if (next < node.timer) {
    node.timer = next;
    At(std::max(now_, next + Delay(1)), [this, index, life = node.life] {
      if (nodes_[index].life != life) return;
      nodes_[index].timer = absl::InfiniteFuture();
      nodes_[index].engine->OnTime(now_);
      Pump(index);
    });
  }
}

absl::flat_hash_set<GlobalDeviceId> Simulation::GpusOf(int index) const {
  if (!gpus_) return {};
  return {GlobalDeviceId(2 * index), GlobalDeviceId(2 * index + 1)};
}

RouteTable Simulation::RandomRoutes() {
  RouteTable routes(kRoutes);
  for (RouteState& route : routes) route.why = "the dice say no";
  routes[static_cast<size_t>(Route::kMapped)].available = Chance(50);
  routes[static_cast<size_t>(Route::kUcx)].available = Chance(90);
  routes[static_cast<size_t>(Route::kTcp)].available = Chance(90);
  routes[static_cast<size_t>(Route::kNccl)].available = Chance(90);
  if (Chance(50)) {  // of a host that is much slower than those which they were measured on
    routes[static_cast<size_t>(Route::kUcx)].prior = {absl::Milliseconds(20), 1e5};
    routes[static_cast<size_t>(Route::kNccl)].prior = {absl::Milliseconds(5), 1e6};
  }
  return routes;
}

}  // namespace ferry
