// SPDX-License-Identifier: Apache-2.0
#include "daemon/transfer_driver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/field_error.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/intake.h"
#include "transfer/device_map.h"
#include "transfer/members.h"

namespace ferry {
namespace {

LogFields TransferFields(TransferId id) {
  return LogFields("session", SessionOf(id), "transfer", SequenceOf(id));
}

}  // namespace

TransferDriver::TransferDriver(Executor& control, LocalDevices& devices, SessionTable& sessions,
                               DeviceMap map, TransferEngine::Options options, Hooks hooks,
                               NcclOptions nccl)
    : control_(control),
      devices_(devices),
      sessions_(sessions),
      hooks_(std::move(hooks)),
      engine_(std::move(map), std::move(options)),
      comms_(control, devices, std::move(nccl), CommHooks()) {}

PostReply TransferDriver::Post(Session& session, PostBatch batch) {
  home_.Check();
  const absl::Time now = control_.Now();
  const TransferId continued = ContinuedBy(session, batch);
  const auto check = [&](std::vector<Violation>& violations) {
    for (TransferEngine::EntryError& error : engine_.Check(batch.specs)) {
      if (batch.bad_entries.contains(error.index)) continue;
      violations.push_back({absl::StrCat("buffers[", error.index, "]"), std::move(error.status)});
    }
  };
  const bool refuses =
      draining_ && !(now < draining_until_ && engine_.view().IsInFlight(continued));
  const Intake intake =
      TakeIn(session, batch, now,
             {refuses ? TakesNone("transfers") : absl::OkStatus(), CheckOwn(batch.device), check});
  const PostReply& reply = intake.reply;
  if (!intake.taken) return reply;
  continued_ += draining_ ? 1 : 0;
  if (!batch.specs.empty()) {
    FERRY_LOG(debug, "batch.posted",
              LogFields("session", session.id(), "transfer", reply.first_transfer_id, "count",
                        batch.specs.size()),
              "{}s of {}", batch.specs.front().side == Side::kSend ? "send" : "receive",
              session.name());
  }
  for (TransferSpec& spec : batch.specs) spec.continues = continued;
  // A prepared batch is one, of which the ends agree as a whole.
  const size_t part = batch.prepare ? batch.specs.size() : kPostsAtOnce;
  absl::Span<TransferSpec> left = absl::MakeSpan(batch.specs);
  for (uint64_t first = reply.first_transfer_id; !left.empty(); first += part) {
    engine_.Post(now, session.id(), first, left.first(std::min(part, left.size())));
    left.remove_prefix(std::min(part, left.size()));
    if (!left.empty()) CarryPart();
  }
  return reply;
}

std::vector<TransferEngine::EntryError> TransferDriver::CheckOfJobs(
    absl::Span<const TransferSpec> specs) const {
  home_.Check();
  std::vector<TransferEngine::EntryError> errors;
  for (const Side side : {Side::kSend, Side::kReceive}) {
    std::vector<TransferSpec> of_side;
    std::vector<size_t> places;
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].side != side) continue;
      of_side.push_back(specs[i]);
      places.push_back(i);
    }
    for (TransferEngine::EntryError& error : engine_.Check(of_side)) {
      errors.push_back({places[error.index], std::move(error.status)});
    }
  }
  return errors;
}

TransferId TransferDriver::ContinuedBy(const Session& session, const PostBatch& batch) {
  if (batch.continues == 0 || batch.prepare || !session.IsKnown(batch.continues)) return {};
  return MakeTransferId(session.id(), batch.continues);
}

absl::Status TransferDriver::CheckOwn(GlobalDeviceId device) const {
  if (devices_.Find(device) != nullptr) return absl::OkStatus();
  const DeviceMap& map = engine_.devices();
  const auto owner = map.owner.find(device);
  return Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
               owner == map.owner.end()
                   ? absl::StrCat("no node has ", device.ToString(), "; ", Shown(map))
                   : absl::StrCat(device.ToString(), " belongs to ", NodeName(owner->second),
                                  ", not to this daemon"));
}

absl::Status TransferDriver::Join(Session& session, const std::string& domain,
                                  GlobalDeviceId device, const std::string& name) {
  home_.Check();
  const auto invalid = [](const char* field, absl::string_view what, size_t least, size_t most,
                          size_t bytes) {
    return FieldError(
        field, absl::StrCat("join: ", what, " has ", least, " to ", most, " bytes, not ", bytes));
  };
  if (domain.size() > kMaxDomainBytes) {
    return invalid("domain", "the domain's name", 0, kMaxDomainBytes, domain.size());
  }
  if (name.empty() || name.size() > Members::kMostName) {
    return invalid("name", "the member's name", 1, Members::kMostName, name.size());
  }
  if (absl::Status status = CheckOwn(device); !status.ok()) {
    return WithText(status, absl::StrCat("join: ", status.message()));
  }
  return engine_.Join(control_.Now(), session.id(), session.TagOf(domain), device, name);
}

TransferDriver::CancelCounts TransferDriver::Cancel(Session& session,
                                                    const std::vector<uint64_t>& sequences,
                                                    const absl::Status& why) {
  home_.Check();
  CancelCounts counts;
  const absl::Time now = control_.Now();
  for (const uint64_t sequence : sequences) {
    if (engine_.Cancel(now, MakeTransferId(session.id(), sequence), why)) {
      ++counts.requested;
    } else {
      ++counts.over;
    }
  }
  return counts;
}

void TransferDriver::CancelAll(const absl::Status& why) {
  home_.Check();
  for (const TransferRow& row : engine_.view().List(engine_.view().in_flight())) {
    engine_.Cancel(control_.Now(), row.transfer, why);
  }
}

TransferDriver::Unmatched TransferDriver::CancelUnmatched(
    const absl::Status& why, const std::function<bool(GlobalDeviceId)>& may_come) {
  home_.Check();
  Unmatched found;
  for (const TransferRow& row : engine_.view().List(engine_.view().in_flight())) {
    // One that was offered may have a partner after all: then the peer answers that it is too late.
    const absl::string_view state = row.state;
    if (state != "waiting" && state != "offered") continue;
    if (engine_.view().Continues(row.transfer) ||
        may_come(row.side == Side::kSend ? row.key.destination : row.key.source)) {
      ++found.left;
    } else if (engine_.Cancel(control_.Now(), row.transfer, why)) {
      ++found.asked;
    }
  }
  return found;
}

void TransferDriver::EndSession(SessionId session) {
  home_.Check();
  engine_.EndSession(control_.Now(), session, "the client's session ended");
}

void TransferDriver::EndPrepared(TransferId transfer, const absl::Status& why) {
  home_.Check();
  // Of a batch that is ending already only some are left, which need no second wish.
  engine_.Cancel(control_.Now(), transfer, why);
}

void TransferDriver::OnPeerUp(PeerId peer, RouteTable routes,
                              absl::flat_hash_set<GlobalDeviceId> gpus) {
  home_.Check();
  engine_.OnPeerUp(control_.Now(), peer, std::move(routes), std::move(gpus));
}

void TransferDriver::OnPeerLost(PeerId peer, const absl::Status& why, bool established) {
  home_.Check();
  if (established) metrics_.OnLinkLost(NodeName(peer));
  engine_.OnPeerLost(control_.Now(), peer, why, established);
  std::vector<Launch> orphans;
  for (auto it = fetching_.begin(); it != fetching_.end();) {
    auto here = it++;
    if (here->first.first != peer) continue;
    for (Launch& launch : here->second) orphans.push_back(std::move(launch));
    fetching_.erase(here);
  }
  for (auto& [launch, status] : starting_) {
    if (launch.peer == peer) orphans.push_back(std::move(launch));
  }
  std::erase_if(starting_, [peer](const auto& entry) { return entry.first.peer == peer; });
  for (const Launch& launch : orphans) {
    engine_.OnLaunchDone(
        control_.Now(), launch.transfer, launch.attempt,
        Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, why.message()));
  }
  for (std::unique_ptr<DeviceMemory>& mapping : peer_arenas_.DropPeer(peer)) {
    DropMapping(std::move(mapping));
  }
}

void TransferDriver::OnPeerMessages(PeerId peer, std::vector<PeerMessage> messages, bool more) {
  home_.Check();
  const absl::Time now = control_.Now();
  engine_.OnMore(now, peer, more);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (i > 0 && i % kPostsAtOnce == 0) CarryPart();
    engine_.OnMessage(now, peer, std::move(messages[i]));
  }
  if (more) CarryPart();  // control may have the next ones already
}

void TransferDriver::OnPeerArena(PeerId peer, ArenaId arena,
                                 absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping) {
  home_.Check();
  auto waiting = fetching_.find({peer, arena});
  if (waiting == fetching_.end()) {  // the link was lost meanwhile
    if (mapping.ok()) DropMapping(*std::move(mapping));
    return;
  }
  std::vector<Launch> launches = std::move(waiting->second);
  fetching_.erase(waiting);
  if (mapping.ok()) {
    std::unique_ptr<DeviceMemory> inserted = *std::move(mapping);
    if (!peer_arenas_.Insert(peer, arena, inserted)) DropMapping(std::move(inserted));
    return StartSoon(std::move(launches), absl::OkStatus());
  }
  const absl::Status unavailable =
      Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
            absl::StrCat("map ", arena.ToString(), " of ", NodeName(peer), ": ",
                         mapping.status().message()));
  StartSoon(std::move(launches), unavailable);
}

void TransferDriver::OnPeerArenaGone(PeerId peer, ArenaId arena) {
  home_.Check();
  if (auto mapping = peer_arenas_.Gone(peer, arena)) DropMapping(std::move(mapping));
}

void TransferDriver::DropMapping(std::unique_ptr<DeviceMemory> mapping) {
  devices_.list.front()->memory->Post([mapping = std::move(mapping)] {});
}

void TransferDriver::OnResults(std::vector<OpResult> results) {
  home_.Check();
  const absl::Time now = control_.Now();
  for (size_t i = 0; i < results.size(); ++i) {
    if (i > 0 && i % kPostsAtOnce == 0) CarryPart();
    const OpResult& result = results[i];
    auto it = running_.find(result.transfer);
    FERRY_CHECK(it != running_.end() && it->second.attempt == result.attempt);
    Unpin(it->second.pins);
    running_.erase(it);
    engine_.OnLaunchDone(now, result.transfer, result.attempt, result.status);
  }
}

void TransferDriver::Carry(Outbox outbox) {
  for (const PeerId peer : outbox.wanted_peers) hooks_.want_peer(peer);
  Address(std::move(outbox.messages));
  for (const WordWatch& watch : outbox.watches) StartWatch(watch);
  for (const TransferId transfer : outbox.unwatch) {
    auto it = watching_.find(transfer);
    if (it == watching_.end()) continue;
    lane_work_[it->second].unwatch.push_back(transfer);
    watching_.erase(it);
  }
  for (Launch& launch : outbox.launches) Start(std::move(launch));
  for (const auto& [transfer, why] : outbox.aborts) Abort(transfer, why);
  for (GroupOrder& order : outbox.groups) Obey(std::move(order));
  for (const Fallback& fallback : outbox.fallbacks) {
    metrics_.OnFallback(fallback);
    FERRY_LOG_LIMITED(
        warn, "route.fallback", TransferFields(fallback.transfer), "{} not possible, next {}: {}",
        std::string(RouteName(fallback.from)),
        fallback.to == Route::kUnspecified ? "none" : std::string(RouteName(fallback.to)),
        fallback.why);
  }
  for (const TransferId transfer : outbox.long_waits) {
    FERRY_LOG_LIMITED(warn, "transfer.waits", TransferFields(transfer), "{}",
                      engine_.WaitText(control_.Now(), transfer));
  }
  for (const Fired& fired : outbox.fired) {
    FindPrepared(fired.transfer, fired.batch)->Over(fired.firing, 1);
  }
  for (const Ended& ended : outbox.ended) OnEnded(ended);
}

void TransferDriver::Address(std::vector<std::pair<PeerId, PeerMessage>> messages) {
  for (size_t i = 0; i < messages.size();) {
    const PeerId peer = messages[i].first;
    std::vector<PeerMessage>& batch = to_peers_[peer];
    if (batch.empty()) batch.reserve(messages.size() - i);
    for (; i < messages.size() && messages[i].first == peer; ++i) {
      batch.push_back(std::move(messages[i].second));
    }
  }
}

void TransferDriver::StartWatch(const WordWatch& watch) {
  Session* session = sessions_.Find(SessionOf(watch.transfer));
  LocalDevice* device = devices_.Find(watch.device);
  FERRY_CHECK(session != nullptr && device != nullptr);
  watching_[watch.transfer] = device;
  DefinedWord word;
  uint64_t target = watch.value;
  if (watch.prepared) {
    PreparedBatch* const batch = FindPrepared(watch.transfer, watch.timeline);
    if (watch.value == 1) batch->Arm();
    word = batch->defined();
    target = batch->ValueOf(watch.value);
  } else {
    word = session->timelines().Defined(watch.timeline);
  }
  word.silent = device->gpu != nullptr;
  lane_work_[device].watches.push_back({watch.transfer, word, target});
}

void TransferDriver::Abort(TransferId transfer, const absl::Status& why) {
  auto it = running_.find(transfer);
  if (it == running_.end()) {  // it waits for a peer's arena
    uint32_t attempt = 0;
    if (StopFetching(transfer, &attempt)) {
      engine_.OnLaunchDone(control_.Now(), transfer, attempt, why);
    }
    return;
  }
  lane_work_[it->second.device].aborts.push_back(
      {transfer, it->second.attempt, why, it->second.transport});
}

void TransferDriver::Obey(GroupOrder&& order) {
  if (auto* open = std::get_if<CommunicatorOpen>(&order)) {
    comms_.Open(std::move(*open));
  } else if (const auto* ahead = std::get_if<GroupAhead>(&order)) {
    comms_.GatherAhead(*ahead);
  } else if (const auto* launch = std::get_if<GroupLaunch>(&order)) {
    LaunchGroup(*launch);
  } else if (const auto* closing = std::get_if<CommunicatorClosing>(&order)) {
    comms_.Closing(*closing);
  } else {
    comms_.End(std::get<CommunicatorEnd>(order));
  }
}

void TransferDriver::OnEnded(const Ended& ended) {
  metrics_.OnEnded(ended, control_.Now());
  const Moved moved = traffic_.OnEnded(
      ended, ended.prepared ? FindPrepared(ended.transfer, ended.over_timeline)->firings() : 0);
  sessions_.Find(SessionOf(ended.transfer))->OnMoved(moved);
  if (!ended.status.ok()) SayFailed(failures_.OnFailed(control_.Now(), ended));
  Over(ended);
}

void TransferDriver::SayFailed(const std::optional<FailureLog::Line>& line) {
  if (line) FERRY_LOG(info, "transfer.failed", TransferFields(line->transfer), "{}", line->text);
}

void TransferDriver::Over(const Ended& ended) {
  home_.Check();
  Session* session = sessions_.Find(SessionOf(ended.transfer));
  FERRY_CHECK(session != nullptr);  // stays until its last transfer is over
  session->OnEnded(ended);
  touched_.insert(session->id());
  if (hooks_.over) hooks_.over(ended);
}

void TransferDriver::FlushLanes() {
  for (auto& [device, work] : lane_work_) {
    if (work.empty()) continue;
    device->lane->Post([this, device = device, work = std::exchange(work, {})]() mutable {
      for (const LaneWatch& watch : work.watches) {
        device->lane->WatchWord(watch.transfer, watch.word, watch.target,
                                [this](TransferId transfer) {
                                  control_.PostOrRun([this, transfer] {
                                    watching_.erase(transfer);
                                    engine_.OnDefined(control_.Now(), transfer);
                                  });
                                });
      }
      // After the watches: a transfer may have ended since its watch was asked for.
      for (const TransferId transfer : work.unwatch) device->lane->Unwatch(transfer);
      for (LaneLaunches& launches : work.launches) {
        if (launches.segments) {
          for (TransportOp& op : launches.ops) op.MakeSegments();
        }
        launches.transport->Launch(std::move(launches.ops));
      }
      for (const LaneAbort& abort : work.aborts) {
        abort.transport->Abort(abort.transfer, abort.attempt, abort.why);
      }
    });
  }
}

void TransferDriver::FlushSessions(absl::Time now) {
  for (const SessionId id : std::exchange(touched_, {})) {
    Session* session = sessions_.Find(id);
    if (session == nullptr) continue;  // its last jobs ended with it
    session->AfterEndings(now);
    if (!session->client_gone) {
      session->timelines().Flush();
      session->endings().NotifyWatchers();
    }
    sessions_.OnIdle(*session);
  }
}

void TransferDriver::FlushPeers(bool more) {
  // A peer that cannot be told any more is lost, of which the engine hears.
  for (auto& [peer, messages] : std::exchange(to_peers_, {})) {
    // What answers a part of the peer's is a part as well.
    hooks_.send(peer, std::move(messages), more || engine_.view().HasMore(peer));
  }
}

void TransferDriver::CarryPart() {
  if (Outbox outbox = engine_.TakeOutbox(/*cut_groups=*/false); !outbox.empty()) {
    Carry(std::move(outbox));
  }
  FlushLanes();
  FlushPeers(/*more=*/true);
}

absl::Time TransferDriver::AfterTasks() {
  home_.Check();
  const absl::Time now = control_.Now();
  if (engine_.NextDeadline() <= now) engine_.OnTime(now);
  StartSome();
  while (true) {
    // In each round: what was carried may have opened a communicator, which others must go for. It
    // ends, since at one time each is asked to go at most once.
    const absl::Time comms = comms_.OnTime(now);
    if (Outbox outbox = engine_.TakeOutbox(); !outbox.empty()) {
      Carry(std::move(outbox));
      continue;
    }
    FlushLanes();
    FlushSessions(now);
    if (to_peers_.empty()) {
      SayFailed(failures_.OnTime(now));
      return starting_.empty() ? std::min({engine_.NextDeadline(), comms, failures_.next()})
                               : absl::InfinitePast();
    }
    // Clients were first: who waits for an ending waits for nothing else, and to wake somebody
    // takes its time.
    FlushPeers(/*more=*/false);
  }
}

}  // namespace ferry
