// SPDX-License-Identifier: Apache-2.0
#include "transfer/engine.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "transfer/device_map.h"
#include "transfer/engine_state.h"
#include "transfer/matcher.h"

namespace ferry {
namespace {

template <typename T>
void Grow(std::vector<T>& list, size_t by) {
  const size_t needed = list.size() + by;
  if (needed > list.capacity()) list.reserve(std::max(needed, 2 * list.capacity()));
}

size_t PeersIn(const DeviceMap& devices) {
  uint32_t peers = devices.self.value() + 1;
  for (const auto& [device, owner] : devices.owner) peers = std::max(peers, owner.value() + 1);
  return std::max<size_t>(peers, devices.node_names.size());
}

OfferBook::Bounds OfferBoundsOf(const EngineOptions::Bounds& bounds) {
  return {bounds.offers_per_peer, bounds.peer_kept_bytes};
}

// Of each peer's tombstones: records, keys and texts.
constexpr uint64_t kTombstoneBytes = uint64_t{32} << 20;

}  // namespace

TransferEngine::Impl::Impl(DeviceMap devices_in, Options options_in)
    : devices(std::move(devices_in)),
      options(std::move(options_in)),
      routes(devices, owners, options.order, options.bounds.by_estimate,
             [this](const Clique& clique) { return std::as_const(cliques).comms().Find(clique); }),
      offers(OfferBoundsOf(options.bounds), PeersIn(devices)),
      peers(PeersIn(devices)),
      tombstones(peers.size(), options.tombstones_per_peer, kTombstoneBytes),
      context{devices, owners, peers, clock, out},
      members(context),
      drains(context, halves),
      long_waits(context, halves, offers,
                 {.split_up = [this](Posted& convoy) { convoys.SplitUp(convoy); },
                  .take_apart = [this](Offered& convoy) { convoys.TakeApart(convoy); }}),
      clique_context{devices, owners, routes, options.cliques, options.bounds.group_time,
                     clock,   out},
      cliques(clique_context,
              [this](PeerId peer, const Clique& clique, const PairName& name, bool receives) {
                return answers.LoadOf(peer, clique, name, receives);
              }),
      tables(context, matcher, offers, long_waits),
      books{options,    halves,     offers,        matcher, tables,
            tombstones, long_waits, convoy_pauses, routes,  cliques},
      launches(context, {.tables = tables, .routes = routes, .cliques = cliques}),
      ends(context,
           {.halves = halves, .tables = tables, .long_waits = long_waits, .cliques = cliques},
           launches),
      destination(context, books, launches, ends),
      source(context,
             {.halves = halves, .tables = tables, .long_waits = long_waits, .cliques = cliques},
             launches, ends),
      answers(context, {.halves = halves, .offers = offers, .tables = tables, .cliques = cliques},
              launches, ends, destination, source),
      convoys(context, books, members, drains, destination, source,
              {.post = [this](absl::Time now, Posted& half) { PostOne(now, half); },
               .cancel = [this](Posted& half,
                                absl::Status why) { early.CancelHalf(half, std::move(why)); },
               .on_offer =
                   [this](absl::Time now, PeerId peer, Offer&& offer) {
                     if (!offer_rules.OnOffer(now, peer, std::move(offer))) ++ignored;
                   }}),
      early(context,
            {.options = options,
             .halves = halves,
             .offers = offers,
             .tables = tables,
             .tombstones = tombstones,
             .long_waits = long_waits},
            members, launches, ends, destination, source, convoys),
      offer_rules(context, books, drains, destination, convoys, early),
      view(context, {.halves = halves,
                     .offers = offers,
                     .tombstones = tombstones,
                     .members = members,
                     .drains = drains,
                     .routes = routes,
                     .cliques = cliques,
                     .ignored_messages = ignored}) {
  for (Peer& peer : peers) {
    peer.last_error = absl::UnavailableError("no connection yet");
    routes.AddPeer();
  }
}

absl::Status TransferEngine::Impl::CheckOne(const TransferSpec& spec,
                                            const HashedKey& hashed) const {
  const MatchKey& key = spec.key;
  for (GlobalDeviceId device : {key.source, key.destination}) {
    if (!owners.Find(device).has_value()) {
      return Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
                   absl::StrCat("transfer of ", Describe(key), ": no node has device ",
                                device.value(), "; ", Shown(devices)));
    }
  }
  const bool send = spec.side == Side::kSend;
  const GlobalDeviceId own = send ? key.source : key.destination;
  if (context.OwnerOf(own) != devices.self) {
    return Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
                 absl::StrCat(send ? "send of " : "receive of ", Describe(key), ": device ",
                              own.value(), " belongs to ", context.NodeName(context.OwnerOf(own)),
                              ", not to this daemon"));
  }
  if (spec.route != Route::kUnspecified) {
    const bool local = context.OwnerOf(key.source) == context.OwnerOf(key.destination);
    if (local != (spec.route == Route::kLocal) || !routes.InOrder(spec.route)) {
      return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                   absl::StrCat("transfer of ", Describe(key), ": route ", RouteName(spec.route),
                                ": ", routes.WhyNot(spec.route, key.source, key.destination)));
    }
  }
  std::optional<Half> waiting = matcher.Find(hashed);
  if (waiting && waiting->side == spec.side && halves.Find(waiting->transfer) != nullptr) {
    return Error(absl::StatusCode::kAlreadyExists, Reason::kKeyInUse,
                 absl::StrCat("transfer of ", Describe(key), ": a ", send ? "send" : "receive",
                              " of this key is waiting already"));
  }
  return absl::OkStatus();
}

void TransferEngine::Impl::PostOne(absl::Time now, Posted& half) {
  const TransferSpec& spec = half.spec;
  if (!spec.defined) tables.WatchDefined(half);
  const Half own{spec.side, devices.self, half.id};
  const HashedKey key(spec.key);
  if (!tombstones.empty() && early.TellOfTombstone(half, key)) return;
  TransferMatcher::Result result = matcher.Add(key, own);
  if (result.outcome == TransferMatcher::Outcome::kApart) {
    convoys.TakeApart(result.other);
    result = matcher.Add(key, own);
  }
  if (result.outcome == TransferMatcher::Outcome::kKeyInUse) {
    return ends.End(half, CheckOne(spec, key));  // Check was not asked, or not listened to
  }
  if (result.outcome == TransferMatcher::Outcome::kMatched) {
    return destination.MatchPosted(half, result.other);
  }
  half.in_matcher = true;
  tables.SetTimer(half);
  if (members.any_deserted() && early.EndIfDeserted(half)) return;
  if (context.Ours(half)) return;
  // A part of something longer, the beginning of which was checked before.
  if (peers[half.peer.value()].left) return ends.End(half, context.LeftStatus(half));
  if (!peers[half.peer.value()].up) return Want(half.peer);
  if (spec.side == Side::kSend) return source.SendOffer(now, half);
  if (peers[half.peer.value()].drains_until && !drains.MayBeSent(half)) {
    ends.End(half, drains.WhyEnds(half));
  }
}

void TransferEngine::Impl::OnWanted(Posted& half) {
  half.firings.wanted = true;
  if (half.spec.side == Side::kSend) {
    context.Send(half.peer, Ready{half.id});
  } else {
    destination.FireByGo(half);
  }
}

void TransferEngine::Impl::Want(PeerId peer) {
  if (peers[peer.value()].wanted) return;
  peers[peer.value()].wanted = true;
  out.wanted_peers.push_back(peer);
}

// --- The public class.

TransferEngine::TransferEngine(DeviceMap devices, Options options)
    : impl_(std::make_unique<Impl>(std::move(devices), std::move(options))) {}
TransferEngine::~TransferEngine() = default;

void TransferEngine::SetBounds(const Bounds& bounds) {
  home_.Check();
  impl_->options.bounds = bounds;
  impl_->routes.SetByEstimate(bounds.by_estimate);
  impl_->offers.SetBounds(OfferBoundsOf(bounds));
}

std::vector<TransferEngine::EntryError> TransferEngine::Check(
    absl::Span<const TransferSpec> batch) const {
  home_.Check();
  std::vector<EntryError> errors;
  absl::flat_hash_set<HashedKey> keys;
  if (batch.size() > 1) keys.reserve(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    const HashedKey key(batch[i].key);
    absl::Status status = impl_->CheckOne(batch[i], key);
    if (status.ok() && batch.size() > 1 && !keys.insert(key).second) {
      status = Error(
          absl::StatusCode::kAlreadyExists, Reason::kKeyInUse,
          absl::StrCat("transfer of ", Describe(batch[i].key), ": the batch has this key twice"));
    }
    if (!status.ok()) errors.push_back({i, std::move(status)});
  }
  return errors;
}

void TransferEngine::Post(absl::Time now, SessionId session, uint64_t first_sequence,
                          absl::Span<TransferSpec> batch) {
  home_.Check();
  impl_->clock = now;
  if (batch.empty()) return;
  const bool sends = batch[0].side == Side::kSend;
  const MatchKey& key = batch[0].key;
  // The batch's own device, and the first one's other: so short a text is not allocated.
  FlightRecorder::Get().Record(
      sends ? "post.send" : "post.receive", MakeTransferId(session, first_sequence),
      (sends ? key.source : key.destination).value(), batch.size(),
      absl::StrCat(sends ? "to " : "from ", (sends ? key.destination : key.source).value()));
  impl_->halves.Expect(session, batch.size());
  if (sends) {
    Grow(impl_->out.messages, batch.size());
  } else {
    Grow(impl_->out.launches, batch.size());
  }
  for (size_t i = 0; i < batch.size();) {
    const ConvoyRules::NextOfBatch next = impl_->convoys.NextOf(batch.subspan(i));
    const size_t end = i + next.count;
    if (next.as_convoy) {
      impl_->convoys.PostConvoy(now, MakeTransferId(session, first_sequence + i),
                                batch.subspan(i, next.count));
      i = end;
    }
    for (; i < end; ++i) {
      const PeerId other = impl_->context.OtherEndOf(batch[i]);
      Posted& half = impl_->halves.Add(now, MakeTransferId(session, first_sequence + i),
                                       std::move(batch[i]), other);
      half.batch = MakeTransferId(session, first_sequence);
      half.batch_size = static_cast<uint32_t>(batch.size());
      impl_->PostOne(now, half);
    }
  }
}

void TransferEngine::OnDefined(absl::Time now, TransferId id) {
  home_.Check();
  impl_->clock = now;
  Posted* half = impl_->halves.Find(id);
  if (half == nullptr || !half->watched) return;
  half->watched = false;
  if (half->spec.prepared) return impl_->OnWanted(*half);
  half->spec.defined = true;
  if (half->spec.side == Side::kReceive) {
    if (half->state.Is<HalfState::Matched>()) impl_->destination.Start(*half);
  } else if (impl_->context.Ours(*half)) {
    if (half->state.Is<HalfState::Matched>())
      impl_->destination.Start(*impl_->halves.Find(half->partner));
  } else if (!half->state.Is<HalfState::Waiting>()) {
    impl_->context.Send(half->peer, Ready{id});
  }
}

bool TransferEngine::Cancel(absl::Time now, TransferId transfer, const absl::Status& why) {
  home_.Check();
  Posted* half = impl_->halves.Holding(transfer);
  if (half == nullptr) return false;
  impl_->clock = now;
  if (half->count() == 1) {
    impl_->early.CancelHalf(*half, why);
  } else {
    impl_->convoys.CancelMember(*half, transfer, why);
  }
  return true;
}

void TransferEngine::EndSession(absl::Time now, SessionId session, absl::string_view why) {
  home_.Check();
  impl_->clock = now;
  impl_->early.EndSession(session, why);
}

absl::Status TransferEngine::Join(absl::Time now, SessionId session, const std::string& domain,
                                  GlobalDeviceId device, absl::string_view name) {
  home_.Check();
  impl_->clock = now;
  FERRY_CHECK(impl_->owners.Find(device) == impl_->devices.self);
  return impl_->members.Join(session, {device, domain}, name);
}

void TransferEngine::SetDraining(absl::Time now, std::optional<absl::Time> until) {
  home_.Check();
  impl_->clock = now;
  impl_->drains.Set(until);
  impl_->offer_rules.RefuseAll();
}

const DeviceMap& TransferEngine::devices() const { return impl_->devices; }

void TransferEngine::OnPeerRoutes(PeerId peer, RouteTable routes) {
  home_.Check();
  if (peer.value() < impl_->peers.size()) impl_->routes.OnPeerRoutes(peer, std::move(routes));
}

void TransferEngine::OnPeerLost(absl::Time now, PeerId peer, const absl::Status& why,
                                bool established) {
  home_.Check();
  impl_->clock = now;
  impl_->OnPeerLost(peer, why, established);
}

void TransferEngine::OnMore(absl::Time now, PeerId peer, bool more) {
  home_.Check();
  impl_->clock = now;
  if (peer.value() < impl_->peers.size()) impl_->cliques.OnMore(peer, more);
}

void TransferEngine::OnLaunchDone(absl::Time now, TransferId transfer, uint32_t attempt,
                                  const absl::Status& status) {
  home_.Check();
  impl_->clock = now;
  impl_->answers.OnLaunchDone(transfer, attempt, status);
}

void TransferEngine::OnFiringWanted(absl::Time now, uint64_t bundle) {
  home_.Check();
  impl_->clock = now;
  impl_->cliques.bundles().OnWanted(bundle);
}

void TransferEngine::OnGroupDone(absl::Time now, uint64_t group, const absl::Status& status,
                                 std::vector<TransferId>* left) {
  home_.Check();
  impl_->clock = now;
  impl_->answers.OnGroupDone(group, status, left);
}

void TransferEngine::GoOn(absl::Time now, absl::Span<const TransferId> left) {
  home_.Check();
  impl_->clock = now;
  for (const TransferId half : left) impl_->answers.GoOn(half);
}

void TransferEngine::OnCommunicatorId(absl::Time now, const Clique& clique, uint32_t attempt,
                                      std::string unique_id) {
  home_.Check();
  impl_->clock = now;
  impl_->cliques.comms().OnId(clique, attempt, std::move(unique_id));
}

void TransferEngine::OnCommunicatorOpened(absl::Time now, const Clique& clique, uint32_t attempt) {
  home_.Check();
  impl_->clock = now;
  impl_->cliques.comms().OnOpened(clique, attempt);
}

void TransferEngine::OnCommunicatorFailed(absl::Time now, const Clique& clique, uint32_t attempt,
                                          const absl::Status& status) {
  home_.Check();
  impl_->clock = now;
  impl_->cliques.attempt_ends().OnCommunicatorFailed(clique, attempt, status);
  impl_->answers.OnCliqueEvents();
}

void TransferEngine::EvictCommunicator(absl::Time now, const Clique& clique, bool busy) {
  home_.Check();
  impl_->clock = now;
  impl_->cliques.attempt_ends().EvictCommunicator(clique, busy);
}

absl::Status TransferEngine::WarmCommunicator(absl::Time now, const Clique& clique) {
  home_.Check();
  impl_->clock = now;
  return impl_->cliques.comms().Warm(clique);
}

void TransferEngine::OnSmsBusy(absl::Time now, GlobalDeviceId device, absl::Time until) {
  home_.Check();
  impl_->clock = now;
  impl_->routes.OnSmsBusy(device, until);
}

void TransferEngine::OnTime(absl::Time now) {
  home_.Check();
  impl_->clock = now;
  impl_->early.OnTime(now);
  while (impl_->cliques.attempt_ends().OnTime()) impl_->answers.OnCliqueEvents();
}

absl::Time TransferEngine::NextDeadline() const {
  home_.Check();
  return std::min(impl_->early.NextTime(), impl_->cliques.NextTime());
}

const EngineView& TransferEngine::view() const {
  home_.Check();
  return impl_->view;
}

std::string TransferEngine::WaitText(absl::Time now, TransferId transfer) {
  home_.Check();
  impl_->clock = now;
  const Posted* const half = impl_->halves.Find(transfer);
  return half == nullptr ? "" : impl_->long_waits.WaitText(*half);
}

Outbox TransferEngine::TakeOutbox(bool cut_groups) {
  home_.Check();
  impl_->early.EndBatches();  // before their ends are told
  // Here, so that what one batch of calls has matched can go together.
  if (cut_groups) {
    impl_->cliques.Run();
    impl_->answers.OnCliqueEvents();
  }
  // Here, and not when the last half ends: that may be in the midst of a walk over others.
  if (impl_->drains.SetAgainIfEmpty()) impl_->offer_rules.RefuseAll();
  for (PeerId peer : impl_->out.wanted_peers) impl_->peers[peer.value()].wanted = false;
  return std::exchange(impl_->out, Outbox());
}

}  // namespace ferry
