// SPDX-License-Identifier: Apache-2.0
// Links between nodes and the lossy network below them: see Simulation::Stream for what the engines
// get to see of it.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/model/simulation.h"

namespace ferry {
namespace {

// A peer that hears nothing for so long calls its link lost.
constexpr absl::Duration kSilence = absl::Milliseconds(200);

template <typename Message>
std::string Name(const Message& m) {
  return absl::StrCat(m.clique.low.value(), "-", m.clique.high.value(), " attempt ", m.attempt);
}

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
    std::string operator()(const Seek& m) {
      return absl::StrCat("Seek ", m.transfer.value(), " ", PrintableKey(m.key.key));
    }
    std::string operator()(const Sought& m) { return absl::StrCat("Sought ", m.transfer.value()); }
    std::string operator()(const Draining& m) {
      return absl::StrCat("Draining ", m.on ? "yes" : "no");
    }
    std::string operator()(const Split& m) { return absl::StrCat("Split ", m.transfer.value()); }
    std::string operator()(const Apart& m) { return absl::StrCat("Apart ", m.transfer.value()); }
    std::string operator()(const MembersTold& m) {
      return absl::StrCat("Members ", m.device.value(), " ", m.count);
    }
    std::string operator()(const Fire& m) {
      return absl::StrCat("Fire ", m.bundle.transfer.value(), " ", Describe(m.clique));
    }
    std::string operator()(const HandOver& m) {
      return absl::StrCat("HandOver ", m.transfer.value());
    }
    std::string operator()(const TakeBack& m) {
      return absl::StrCat("TakeBack ", m.transfer.value());
    }
    std::string operator()(const Group& m) {
      return absl::StrCat("Group ", Name(m), " number ", m.number, ": ",
                          absl::StrJoin(m.chunks, " ", [](std::string* out, const Chunk& chunk) {
                            absl::StrAppend(out, chunk.pair.transfer.value(),
                                            chunk.pair.to_low ? "<" : ">", chunk.offset, "+",
                                            chunk.bytes);
                          }));
    }
    std::string operator()(const Granted& m) {
      return absl::StrCat("Granted ", Name(m), " number ", m.number, " without [",
                          absl::StrJoin(m.refused, " "), "]");
    }
    std::string operator()(const GroupFailed& m) {
      return absl::StrCat("GroupFailed ", Name(m), " number ", m.number, " ", m.status.ToString());
    }
    std::string operator()(const AttemptOver& m) {
      return absl::StrCat("AttemptOver ", Name(m), " number ", m.number, " ", m.status.ToString());
    }
    std::string operator()(const Evict& m) { return absl::StrCat("Evict ", Name(m)); }
    std::string operator()(const OpenComm& m) { return absl::StrCat("Open ", Name(m)); }
    std::string operator()(const WarmComm& m) {
      return absl::StrCat("Warm ", m.clique.low.value(), "-", m.clique.high.value());
    }
  };
  return std::visit(Visitor(), message);
}

}  // namespace

Simulation::Link& Simulation::LinkOf(int a, int b) {
  return links_[{std::min(a, b), std::max(a, b)}];
}

void Simulation::Wanted(int node, int peer) {
  if (node == peer) return Fail(absl::StrCat("node-", node, " wants a link to itself"));
  Link& link = LinkOf(node, peer);
  if (link.connected || link.connecting) return;
  link.connecting = true;
  After(Delay(30), [this, node, peer] { Connect(node, peer); });
}

void Simulation::Connect(int a, int b) {
  Link& link = LinkOf(a, b);
  const bool cut = std::max(link.to[0].roads[kStream].blocked_until,
                            link.to[1].roads[kStream].blocked_until) > now_;
  const bool split = split_.until > now_ && InSplit(a) != InSplit(b);
  const bool down = EngineAt(a) == nullptr || EngineAt(b) == nullptr;
  const bool refused = nodes_[a].strangers.contains(b) || nodes_[b].strangers.contains(a);
  if (down || refused || cut || split || link.unaware > 0 || Chance(20)) {
    for (const auto& [node, other] : {std::make_pair(a, b), std::make_pair(b, a)}) {
      if (EngineAt(node) == nullptr || nodes_[node].strangers.contains(other)) continue;
      Say(absl::StrCat("node-", node, " cannot reach node-", other));
      // An end that does not know the loss yet still thinks that it has the old link.
      if (link.up[EndOf(node, other)]) continue;
      EngineAt(node)->OnPeerLost(now_, PeerId(other), absl::UnavailableError("connection refused"),
                                 false);
      Touched(node);
    }
    After(Delay(60), [this, a, b] { Connect(a, b); });
    return;
  }
  link.connecting = false;
  link.connected = true;
  ++link.generation;
  for (const auto& [node, other] : {std::make_pair(a, b), std::make_pair(b, a)}) {
    const int end = EndOf(node, other);
    link.life[end] = nodes_[node].life;
    link.to[end] = Direction();
    // The stream's first segment is the hello: it brings the link up at its end.
    link.to[end].roads[kStream].next_send = 1;
    Transmit(other, node, kStream, 0, link.generation);
  }
}

void Simulation::LoseLink(int node, int other, absl::string_view why) {
  Link& link = LinkOf(node, other);
  link.up[EndOf(node, other)] = false;
  --link.unaware;
  Say(absl::StrCat("node-", node, ": link to node-", other, " is lost"));
  EngineAt(node)->OnPeerLost(now_, PeerId(other), absl::UnavailableError(why), true);
  Pump(node);  // before the link can come back
}

void Simulation::BreakLink(int a, int b) {
  Link& link = LinkOf(a, b);
  if (!link.connected) return;
  Say(absl::StrCat("the link of node-", a, " and node-", b, " breaks"));
  ++count_.resets;
  link.connected = false;
  ++link.generation;  // what is on its way is lost
  ++link.losses;
  for (const auto& [node, other] : {std::make_pair(a, b), std::make_pair(b, a)}) {
    if (!link.up[EndOf(node, other)]) continue;
    ++link.unaware;
    After(Delay(30), [this, node = node, other = other, life = nodes_[node].life] {
      if (nodes_[node].life == life) LoseLink(node, other, "reset by peer");
    });
  }
  // A side that still wants the link has said so before; the dialler keeps trying.
  if (!link.connecting) {
    link.connecting = true;
    After(Delay(60), [this, a, b] { Connect(a, b); });
  }
}

std::optional<std::pair<int, int>> Simulation::RandomLink() {
  if (links_.empty()) return std::nullopt;
  return std::next(links_.begin(), Random(links_.size()))->first;
}

void Simulation::Partition(int a, int b) {
  const uint64_t way = Random(3);  // one way, the other, both
  Cut(a, b, way != 0, way != 1, now_ + Delay(400));
}

bool Simulation::InSplit(int node) const {
  const uint64_t daemons = options_.daemons;
  return (node + daemons - split_.first) % daemons < split_.size;
}

// As when a switch fails. One at a time: links that are made meanwhile have to ask.
void Simulation::PartitionGroup() {
  if (split_.until > now_) return;
  ++count_.splits;
  const uint64_t half = (options_.daemons + 1) / 2;
  split_ = {Random(options_.daemons), 1 + Random(half), now_ + Delay(400)};
  const uint64_t way = Random(3);
  const bool in = way != 0, out = way != 1;  // what is cut
  Say(absl::StrCat("partition of ", split_.size, " daemons from node-", split_.first, " on"));
  for (const auto& [ends, link] : links_) {
    const auto [a, b] = ends;
    if (InSplit(a) == InSplit(b)) continue;
    Cut(a, b, InSplit(a) ? in : out, InSplit(a) ? out : in, split_.until);
  }
}

void Simulation::Cut(int a, int b, bool to_a, bool to_b, absl::Time until) {
  Link& link = LinkOf(a, b);
  if (!link.connected) return;
  ++count_.partitions;
  Say(absl::StrCat("partition between node-", a, " and node-", b,
                   to_a && to_b ? ", both ways" : ", one way"));
  if (to_a) link.to[EndOf(a, b)].roads[kStream].blocked_until = until;
  if (to_b) link.to[EndOf(b, a)].roads[kStream].blocked_until = until;
  if (until - now_ < kSilence) return;  // heals before anybody calls it a loss
  After(kSilence, [this, a, b, generation = link.generation] {
    if (LinkOf(a, b).generation == generation) BreakLink(a, b);
  });
}

void Simulation::Carry(int from, int to, std::vector<PeerMessage> messages) {
  Link& link = LinkOf(from, to);
  if (!link.up[EndOf(from, to)]) {
    return Fail(absl::StrCat("node-", from, " sends to node-", to,
                             " over a link that it knows is down: ", Describe(messages[0])));
  }
  std::vector<PeerMessage> together;
  for (PeerMessage& message : messages) {
    Say(absl::StrCat("node-", from, " -> node-", to, ": ", Describe(message)));
    ++count_.messages;
    if (const Group* group = std::get_if<Group>(&message)) NoteGroup(from, to, *group);
    if (const Offer* offer = std::get_if<Offer>(&message)) {
      if (HalfModel* send = HalfAt(from, offer->transfer)) send->offered_as = offer->key.count;
    }
    if (const Apart* apart = std::get_if<Apart>(&message)) {
      if (HalfModel* send = HalfAt(to, apart->transfer)) send->offered_as = 1;
    }
    if (const AttemptOver* over = std::get_if<AttemptOver>(&message); over && !over->status.ok()) {
      failed_attempts_.insert(KeyOf(from, over->clique, over->attempt));
    }
    together.push_back(std::move(message));
    if (Chance(70)) Frame(from, to, std::exchange(together, {}));
  }
  if (!together.empty()) Frame(from, to, std::move(together));
}

void Simulation::Frame(int from, int to, std::vector<PeerMessage> messages) {
  Link& link = LinkOf(from, to);
  if (!link.connected) return;
  Direction& direction = link.to[EndOf(to, from)];
  PeerEvents frame{std::move(messages), {}, direction.said + 1};
  direction.said += frame.events();
  const bool neighbours = nodes_[from].host == nodes_[to].host;
  const Road road = neighbours && Chance(60) ? kSocket : kStream;
  Stream& stream = direction.roads[road];
  const uint64_t sequence = stream.next_send++;
  stream.window.emplace(sequence, std::move(frame));
  Transmit(from, to, road, sequence, link.generation);
}

void Simulation::Transmit(int from, int to, Road road, uint64_t sequence, uint64_t generation) {
  Link& link = LinkOf(from, to);
  if (link.generation != generation) return;
  Stream& stream = link.to[EndOf(to, from)].roads[road];
  if (sequence < stream.next_deliver || stream.arrived.contains(sequence)) return;
  const bool harmed = road == kStream && !calm_;
  const bool lost = stream.blocked_until > now_ || (harmed && Chance(profile_.wire));
  if (lost) {
    ++count_.lost;
  } else {
    const bool doubled = harmed && Chance(profile_.wire);
    if (doubled) ++count_.doubled;
    for (int copies = doubled ? 2 : 1; copies > 0; --copies) {
      After(Delay(Chance(10) ? 25 : 3), [this, from, to, road, sequence, generation] {
        Arrive(from, to, road, sequence, generation);
      });
    }
  }
  // Sent again until it has arrived; the acknowledgement is thought.
  if (lost) {
    After(absl::Milliseconds(5) + Delay(10), [this, from, to, road, sequence, generation] {
      Transmit(from, to, road, sequence, generation);
    });
  }
}

void Simulation::Arrive(int from, int to, Road road, uint64_t sequence, uint64_t generation) {
  Link& link = LinkOf(from, to);
  if (link.generation != generation) return;
  const int end = EndOf(to, from);
  Stream& stream = link.to[end].roads[road];
  if (sequence < stream.next_deliver || !stream.arrived.insert(sequence).second) return;
  if (sequence > stream.next_deliver) ++count_.reordered;
  while (stream.arrived.erase(stream.next_deliver) > 0) {
    const uint64_t next = stream.next_deliver++;
    if (road == kStream && next == 0) {
      Say(absl::StrCat("node-", to, ": link to node-", from, " is up"));
      link.up[end] = true;
      // Both hellos say that there is NCCL; later it may be out of order for new transfers.
      RouteTable routes = RandomRoutes();
      routes[static_cast<size_t>(Route::kNccl)].available = true;
      EngineAt(to)->OnPeerUp(now_, PeerId(from), std::move(routes), GpusOf(from));
      Touched(to);
    } else {
      PeerEvents frame = std::move(stream.window.extract(next).mapped());
      if (frame.first_event > link.to[end].heard + 1) ++count_.early;
      if (absl::Status put = link.to[end].order.Put(std::move(frame)); !put.ok()) {
        return Fail(absl::StrCat("node-", to, " hears node-", from, ": ", put.ToString()));
      }
    }
    Deliver(from, to);
  }
}

void Simulation::NoteOffer(int from, int to, const Offer& offer) {
  const auto held = EngineAt(to)->view().OffersHeld();
  const auto theirs = held.find(PeerId(from));
  const size_t before = theirs == held.end() ? 0 : theirs->second;
  for (uint64_t place = 0; place < offer.key.count; ++place) {
    const HalfModel* send = HalfAt(from, TransferId(offer.transfer.value() + place));
    if (send == nullptr || before + place == 0) continue;
    if (4 * (before + place) >=
        engine_options_.bounds.offers_per_peer) {  // its session's may be all
      scenarios_[send->scenario].queue_full = true;
    }
  }
}

void Simulation::Deliver(int from, int to) {
  Link& link = LinkOf(from, to);
  const int end = EndOf(to, from);
  Direction& direction = link.to[end];
  while (link.up[end]) {
    std::optional<PeerEvents> events = direction.order.Take();
    if (!events.has_value()) break;
    if (events->first_event != direction.heard + 1) {
      return Fail(absl::StrCat("node-", to, " is told event ", events->first_event, " of node-",
                               from, ", but ", direction.heard + 1, " is next"));
    }
    direction.heard += events->events();
    // By other dice than the seed's, whose stories stay what they are.
    if (options_.seed % 2 == 0) {
      EngineAt(to)->OnMore(now_, PeerId(from), events->first_event / 3 % 4 == 0);
    }
    for (PeerMessage& message : events->messages) {
      if (std::holds_alternative<Apart>(message)) ++count_.apart;
      if (const Offer* offer = std::get_if<Offer>(&message)) NoteOffer(from, to, *offer);
      if (const auto* draining = std::get_if<Draining>(&message); draining && draining->on) {
        NoteDrain(from, to);  // which may have been taken back meanwhile
      }
      EngineAt(to)->OnMessage(now_, PeerId(from), std::move(message));
      CheckBounds(to);
    }
    Touched(to);
  }
}

}  // namespace ferry
