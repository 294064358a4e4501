// SPDX-License-Identifier: Apache-2.0
#include "daemon/transfer_driver.h"

#include <string.h>

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "transfer/pieces.h"

namespace ferry {
namespace {

LogFields TransferFields(TransferId id) {
  return LogFields("session", SessionOf(id), "transfer", SequenceOf(id));
}

}  // namespace

TransferDriver::TransferDriver(Executor& control, LocalDevices& devices, SessionTable& sessions,
                               DeviceMap map, TransferEngine::Options options, Hooks hooks)
    : control_(control),
      devices_(devices),
      sessions_(sessions),
      map_(map),
      hooks_(std::move(hooks)),
      engine_(std::move(map), std::move(options)) {}

PostReply TransferDriver::Post(Session& session, PostBatch batch) {
  if (std::optional<PostReply> before = session.FindRequest(batch)) return *std::move(before);
  PostReply reply;
  if (draining_) {
    reply.status = Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                         "post transfers: the daemon drains and takes no new ones");
    metrics_.OnRejected(reply.status);
    return reply;
  }
  const absl::Time now = control_.Now();
  reply.violations = std::move(batch.violations);
  if (reply.violations.empty()) reply.violations = session.CheckAndComplete(batch, now);
  if (reply.violations.empty()) {
    for (TransferEngine::EntryError& error : engine_.Check(batch.specs)) {
      reply.violations.push_back(
          {absl::StrCat("buffers[", error.index, "]"), std::move(error.status)});
    }
  }
  if (!reply.violations.empty()) {
    reply.status = RefusedBatch(reply.violations, batch.specs.size());
    metrics_.OnRejected(reply.status);
    return reply;
  }
  reply = session.Admit(batch);
  session.RememberRequest(batch, reply);
  if (!batch.specs.empty()) {
    FERRY_LOG(debug, "batch.posted",
              LogFields("session", session.id(), "transfer", reply.first_transfer_id, "count",
                        batch.specs.size()),
              "{}s of {}", batch.specs.front().side == Side::kSend ? "send" : "receive",
              session.name());
  }
  engine_.Post(now, session.id(), reply.first_transfer_id, std::move(batch.specs));
  return reply;
}

TransferDriver::CancelCounts TransferDriver::Cancel(Session& session,
                                                    const std::vector<uint64_t>& sequences,
                                                    const absl::Status& why) {
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

size_t TransferDriver::CancelAll(const absl::Status& why) {
  size_t asked = 0;
  for (const TransferEngine::Row& row : engine_.List(engine_.in_flight())) {
    asked += engine_.Cancel(control_.Now(), row.transfer, why) ? 1 : 0;
  }
  return asked;
}

void TransferDriver::EndSession(SessionId session) {
  engine_.EndSession(control_.Now(), session, "the client's session ended");
}

void TransferDriver::EndPrepared(TransferId transfer, const absl::Status& why) {
  // Of a batch that is ending already only some are left, which need no second wish.
  engine_.Cancel(control_.Now(), transfer, why);
}

void TransferDriver::OnPeerUp(PeerId peer, RouteTable routes, bool prepared,
                              absl::flat_hash_set<GlobalDeviceId> gpus) {
  engine_.OnPeerUp(control_.Now(), peer, std::move(routes), prepared, std::move(gpus));
}

void TransferDriver::OnPeerLost(PeerId peer, const absl::Status& why, bool established) {
  engine_.OnPeerLost(control_.Now(), peer, why, established);
  std::vector<Launch> orphans;
  for (auto it = fetching_.begin(); it != fetching_.end();) {
    auto here = it++;
    if (here->first.first != peer) continue;
    for (Launch& launch : here->second) orphans.push_back(std::move(launch));
    fetching_.erase(here);
  }
  for (const Launch& launch : orphans) {
    engine_.OnLaunchDone(
        control_.Now(), launch.transfer, launch.attempt,
        Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable, why.message()));
  }
  for (std::unique_ptr<DeviceMemory>& mapping : peer_arenas_.DropPeer(peer)) {
    DropMapping(std::move(mapping));
  }
}

void TransferDriver::OnPeerMessages(PeerId peer, std::vector<PeerMessage> messages) {
  const absl::Time now = control_.Now();
  for (PeerMessage& message : messages) engine_.OnMessage(now, peer, std::move(message));
}

void TransferDriver::OnPeerArena(PeerId peer, ArenaId arena,
                                 absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping) {
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
    for (Launch& launch : launches) Start(std::move(launch));
    return;
  }
  const absl::Status unavailable =
      Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
            absl::StrCat("map ", arena.ToString(), " of ", map_.node_names[peer.value()], ": ",
                         mapping.status().message()));
  for (const Launch& launch : launches) {
    engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt, unavailable);
  }
}

void TransferDriver::OnPeerArenaGone(PeerId peer, ArenaId arena) {
  if (auto mapping = peer_arenas_.Gone(peer, arena)) DropMapping(std::move(mapping));
}

void TransferDriver::DropMapping(std::unique_ptr<DeviceMemory> mapping) {
  devices_.list.front()->memory->Post([mapping = std::move(mapping)] {});
}

LocalDevice& TransferDriver::RunnerOf(const Launch& launch) {
  LocalDevice* const own = devices_.Find(launch.device);
  FERRY_CHECK(own != nullptr);
  if (launch.route != Route::kLocal || own->gpu != nullptr) return *own;
  LocalDevice* const other = devices_.Find(launch.remote_device);
  return other->gpu != nullptr ? *other : *own;
}

bool TransferDriver::Pinned(Launch& launch, LocalDevice& runner) {
  if (runner.gpu == nullptr || launch.role != LaunchRole::kCopy) return true;
  const auto host_arena = [&](const Layout& layout) -> Arena* {
    for (const Range& extent : layout.extents()) {
      Arena* const arena = sessions_.FindArena(extent.arena);
      if (arena->kind == MemoryKind::kMemfd && arena->pinned != Arena::Pinned::kTried) return arena;
    }
    return nullptr;
  };
  Arena* arena = host_arena(launch.layout);
  if (arena == nullptr && launch.route == Route::kLocal) arena = host_arena(launch.remote_layout);
  if (arena == nullptr) return true;
  pinning_[arena->id].push_back(std::move(launch));
  if (std::exchange(arena->pinned, Arena::Pinned::kUnderWay) == Arena::Pinned::kUnderWay) {
    return false;
  }
  // On the memory thread of its own device, where it is unmapped too, so not before.
  devices_.Find(arena->device)
      ->memory->Post([this, id = arena->id, memory = arena->mapping.get(), gpu = runner.gpu] {
        auto pin = gpu->Pin(*memory, /*read_only=*/false);
        if (pin.ok()) {
          memory->Keep(*std::move(pin));
        } else {
          FERRY_LOG_LIMITED(warn, "gpu.pin", LogFields("arena", id),
                            "it is copied by way of the driver's buffers, which is slower: {}",
                            std::string(pin.status().message()));
        }
        control_.Post([this, id] { OnPinned(id); });
      });
  return false;
}

void TransferDriver::OnPinned(ArenaId id) {
  if (Arena* const arena = sessions_.FindArena(id); arena != nullptr) {
    arena->pinned = Arena::Pinned::kTried;
  }
  const auto waiting = pinning_.find(id);
  if (waiting == pinning_.end()) return;
  std::vector<Launch> launches = std::move(waiting->second);
  pinning_.erase(waiting);
  for (Launch& launch : launches) Start(std::move(launch));
}

absl::StatusOr<bool> TransferDriver::Resolve(const Launch& launch, const LocalDevice& runner,
                                             TransportOp& op,
                                             std::vector<const DeviceMemory*>& pins) {
  op.transfer = launch.transfer;
  op.attempt = launch.attempt;
  op.role = launch.role;
  op.peer = launch.peer;
  op.remote_device = launch.remote_device;
  op.priority = launch.priority;
  op.tag = launch.tag;
  absl::Status reached;
  const auto reach = [&](const DeviceMemory& memory) {
    if (runner.gpu != nullptr) reached.Update(runner.gpu->CanReach(memory));
  };
  const auto address = [&](const Range& extent) {
    Arena* arena = sessions_.FindArena(extent.arena);
    FERRY_CHECK(arena != nullptr);  // pinned since posting
    reach(*arena->mapping);
    return arena->mapping->data() + extent.offset;
  };
  absl::InlinedVector<std::byte*, 1> own;
  for (const Range& extent : launch.layout.extents()) own.push_back(address(extent));

  if (launch.armed.has_value()) {
    ASSIGN_OR_RETURN(op.prepared, ResolveEnds(launch));
    op.prepared->silent = runner.gpu != nullptr;
    if (launch.role == LaunchRole::kSend) return true;  // only the other end copies
  }
  if (launch.role != LaunchRole::kCopy) {
    for (LayoutCursor run(launch.layout); !run.AtEnd(); run.Advance(run.left())) {
      op.segments.push_back({own[run.extent()] + run.offset(), nullptr, run.left()});
    }
    return true;
  }

  absl::InlinedVector<const std::byte*, 1> remote;
  for (const Range& extent : launch.remote_layout.extents()) {
    if (launch.route == Route::kLocal) {
      remote.push_back(address(extent));
      continue;
    }
    const DeviceMemory* mapping = peer_arenas_.Find(launch.peer, extent.arena);
    if (mapping == nullptr) return false;
    if (extent.length > mapping->bytes() || extent.offset > mapping->bytes() - extent.length) {
      return Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                   absl::StrCat(map_.node_names[launch.peer.value()], " offered bytes outside ",
                                extent.arena.ToString()));
    }
    reach(*mapping);
    remote.push_back(mapping->data() + extent.offset);
  }
  RETURN_IF_ERROR(reached);
  if (launch.route == Route::kMapped) {
    for (const Range& extent : launch.remote_layout.extents()) {
      pins.push_back(peer_arenas_.Pin(launch.peer, extent.arena));
    }
  }
  op.copy.emplace(launch.remote_layout, std::move(remote), launch.layout, std::move(own));
  return true;
}

PreparedBatch* TransferDriver::FindPrepared(TransferId transfer, uint32_t batch) {
  // Both stay until the transfer is over.
  return sessions_.Find(SessionOf(transfer))->FindPrepared(batch)->batch.get();
}

absl::StatusOr<PreparedEnds> TransferDriver::ResolveEnds(const Launch& launch) {
  PreparedEnds ends;
  ends.own = FindPrepared(launch.transfer, launch.armed->batch);
  if (launch.route == Route::kLocal) {
    ends.source = FindPrepared(launch.armed->source, launch.armed->source_batch);
    return ends;
  }
  const auto unavailable = [&](absl::string_view why) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                 absl::StrCat("arm ", launch.transfer.ToString(), " with ",
                              map_.node_names[launch.peer.value()], ": ", why));
  };
  ends.slot = launch.armed->slot;
  if (ends.slot == 0) {
    return unavailable(absl::StrCat("all ", kPreparedSlots, " slots of the link are taken"));
  }
  ends.page = hooks_.page_with_slots(launch.peer, launch.role == LaunchRole::kSend);
  if (ends.page == nullptr) return unavailable("the link has no slots for prepared transfers");
  return ends;
}

bool TransferDriver::StopFetching(TransferId transfer, uint32_t* attempt) {
  const auto stop = [&](auto& waiting) {
    for (auto& [what, launches] : waiting) {
      for (auto launch = launches.begin(); launch != launches.end(); ++launch) {
        if (launch->transfer != transfer) continue;
        *attempt = launch->attempt;
        launches.erase(launch);
        return true;
      }
    }
    return false;
  };
  return stop(fetching_) || stop(pinning_);
}

void TransferDriver::Start(Launch launch) {
  LocalDevice& runner = RunnerOf(launch);
  if (!Pinned(launch, runner)) return;
  TransportOp op;
  std::vector<const DeviceMemory*> pins;
  const absl::StatusOr<bool> resolved = Resolve(launch, runner, op, pins);
  if (!resolved.ok()) {
    engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt, resolved.status());
    return;
  }
  if (!*resolved) {
    for (const Range& extent : launch.remote_layout.extents()) {
      if (peer_arenas_.Find(launch.peer, extent.arena) != nullptr) continue;
      const auto key = std::make_pair(launch.peer, extent.arena);
      auto [it, first] = fetching_.try_emplace(key);
      const GlobalDeviceId device = launch.device;
      it->second.push_back(std::move(launch));
      if (first) hooks_.fetch_arena(key.first, key.second, device);
      return;
    }
  }
  if (launch.role == LaunchRole::kCopy && launch.bytes <= kInlineBytes && !op.prepared &&
      runner.gpu == nullptr) {
    while (!op.copy->AtEnd()) {
      const Segment segment = op.copy->Next();
      memcpy(segment.local, segment.remote, segment.size);
    }
    absl::Status status;
    if (launch.route == Route::kMapped) status = hooks_.still_valid(launch.peer);
    Unpin(pins);
    engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt, status);
    return;
  }
  LocalDevice* const device = &runner;
  if (launch.route == Route::kUcx && device->ucx == nullptr) {
    engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt,
                         Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                               "this daemon has no UCX"));
    return;
  }
  const bool armed = launch.armed.has_value();
  running_[launch.transfer] = {device, launch.route, armed, launch.attempt, std::move(pins)};
  LaneWork& work = lane_work_[device];
  if (armed) return work.armed.push_back(std::move(op));
  (launch.route == Route::kUcx ? work.ucx : work.copies).push_back(std::move(op));
}

void TransferDriver::Unpin(const std::vector<const DeviceMemory*>& pins) {
  for (const DeviceMemory* pinned : pins) {
    if (auto mapping = peer_arenas_.Unpin(pinned)) DropMapping(std::move(mapping));
  }
}

void TransferDriver::OnResults(std::vector<OpResult> results) {
  const absl::Time now = control_.Now();
  for (OpResult& result : results) {
    auto it = running_.find(result.transfer);
    FERRY_CHECK(it != running_.end() && it->second.attempt == result.attempt);
    Unpin(it->second.pins);
    running_.erase(it);
    engine_.OnLaunchDone(now, result.transfer, result.attempt, result.status);
  }
}

void TransferDriver::Carry(Outbox outbox) {
  for (const PeerId peer : outbox.wanted_peers) hooks_.want_peer(peer);
  for (size_t i = 0; i < outbox.messages.size();) {
    const PeerId peer = outbox.messages[i].first;
    std::vector<PeerMessage>& batch = to_peers_[peer];
    for (; i < outbox.messages.size() && outbox.messages[i].first == peer; ++i) {
      batch.push_back(std::move(outbox.messages[i].second));
    }
  }
  for (const Watch& watch : outbox.watches) {
    Session* session = sessions_.Find(SessionOf(watch.transfer));
    LocalDevice* device = devices_.Find(watch.device);
    FERRY_CHECK(session != nullptr && device != nullptr);
    watching_[watch.transfer] = device;
    if (!watch.prepared) {
      DefinedWord word = session->timelines().Defined(watch.timeline);
      word.silent = device->gpu != nullptr;
      lane_work_[device].watches.emplace_back(watch, word);
      continue;
    }
    PreparedBatch* batch = FindPrepared(watch.transfer, watch.timeline);
    if (watch.value == 1) batch->Arm();
    lane_work_[device].watches.emplace_back(watch, batch->defined());
  }
  for (const TransferId transfer : outbox.unwatch) {
    auto it = watching_.find(transfer);
    if (it == watching_.end()) continue;
    lane_work_[it->second].unwatch.push_back(transfer);
    watching_.erase(it);
  }
  for (Launch& launch : outbox.launches) Start(std::move(launch));
  for (auto& [transfer, why] : outbox.aborts) {
    auto it = running_.find(transfer);
    if (it == running_.end()) {  // it waits for a peer's arena
      uint32_t attempt = 0;
      if (StopFetching(transfer, &attempt)) {
        engine_.OnLaunchDone(control_.Now(), transfer, attempt, why);
      }
      continue;
    }
    LaneWork& work = lane_work_[it->second.device];
    (it->second.armed                  ? work.armed_aborts
     : it->second.route == Route::kUcx ? work.ucx_aborts
                                       : work.copy_aborts)
        .emplace_back(transfer, std::make_pair(it->second.attempt, why));
  }
  for (const Fallback& fallback : outbox.fallbacks) {
    metrics_.OnFallback(fallback);
    FERRY_LOG(warn, "route.fallback", TransferFields(fallback.transfer),
              "{} not possible, next {}: {}", std::string(RouteName(fallback.from)),
              fallback.to == Route::kUnspecified ? "none" : std::string(RouteName(fallback.to)),
              fallback.why);
  }
  for (const Fired& fired : outbox.fired) {
    FindPrepared(fired.transfer, fired.batch)->Over(fired.firing, 1);
  }
  for (Ended& ended : outbox.ended) OnEnded(std::move(ended));
}

void TransferDriver::OnEnded(Ended ended) {
  metrics_.OnEnded(ended, control_.Now());
  if (!ended.status.ok()) {
    FERRY_LOG(debug, "transfer.failed", TransferFields(ended.transfer), "{} {}: {}",
              absl::StatusCodeToString(ended.status.code()),
              std::string(ReasonName(ReasonOf(ended.status))), std::string(ended.status.message()));
  }
  Session* session = sessions_.Find(SessionOf(ended.transfer));
  FERRY_CHECK(session != nullptr);  // stays until its last transfer is over
  session->OnEnded(ended);
  touched_.insert(session->id());
}

void TransferDriver::FlushLanes() {
  for (auto& [device, work] : lane_work_) {
    if (work.empty()) continue;
    device->lane->Post([this, device = device, work = std::exchange(work, {})]() mutable {
      for (auto& [watch, word] : work.watches) {
        device->lane->WatchWord(watch.transfer, word, watch.value, [this](TransferId transfer) {
          control_.PostOrRun([this, transfer] {
            watching_.erase(transfer);
            engine_.OnDefined(control_.Now(), transfer);
          });
        });
      }
      // After the watches: a transfer may have ended since its watch was asked for.
      for (const TransferId transfer : work.unwatch) device->lane->Unwatch(transfer);
      if (!work.copies.empty()) device->copy->Launch(std::move(work.copies));
      if (!work.ucx.empty()) device->ucx->Launch(std::move(work.ucx));
      if (!work.armed.empty()) device->prepared->Launch(std::move(work.armed));
      for (auto& [transfer, what] : work.copy_aborts)
        device->copy->Abort(transfer, what.first, what.second);
      for (auto& [transfer, what] : work.ucx_aborts)
        device->ucx->Abort(transfer, what.first, what.second);
      for (auto& [transfer, what] : work.armed_aborts)
        device->prepared->Abort(transfer, what.first, what.second);
    });
  }
}

void TransferDriver::FlushSessions(absl::Time now) {
  for (const SessionId id : std::exchange(touched_, {})) {
    Session* session = sessions_.Find(id);
    session->AfterEndings(now);
    if (!session->closing) {
      session->timelines().Flush();
      session->NotifyWatchers();
    }
    sessions_.OnIdle(*session);
  }
}

absl::Time TransferDriver::AfterBatch() {
  const absl::Time now = control_.Now();
  if (engine_.NextDeadline() <= now) engine_.OnTime(now);
  while (true) {
    if (Outbox outbox = engine_.TakeOutbox(); !outbox.empty()) {
      Carry(std::move(outbox));
      continue;
    }
    FlushLanes();
    FlushSessions(now);
    if (to_peers_.empty()) break;
    // Clients were first: who waits for an ending waits for nothing else, and to wake somebody takes
    // its time. A peer that cannot be told any more is lost, of which the engine hears.
    for (auto& [peer, messages] : std::exchange(to_peers_, {})) {
      hooks_.send(peer, std::move(messages));
    }
  }
  return engine_.NextDeadline();
}

}  // namespace ferry
