// SPDX-License-Identifier: Apache-2.0
// TransferDriver's launches: which lane runs a launch, what memory it needs there, and its start;
// and its groups, for which it connects the engine with CommTable.
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/status.h"
#include "daemon/transfer_driver.h"

namespace ferry {
namespace {

// How the device that runs a launch reaches the launch's memory.
struct Reach {
  const CudaDevice* gpu = nullptr;  // null: a host device
  absl::Status reached;             // why the device cannot touch some of the memory
  bool by_engine = false;           // this and slow_road: see CopyPiece
  bool slow_road = false;

  // The address at which memory begins for this device.
  std::byte* Begin(const DeviceMemory& memory) {
    if (gpu == nullptr) return memory.data();
    reached.Update(gpu->CanReach(memory));
    by_engine |= !gpu->KernelsCanReach(memory);
    slow_road |= !gpu->IsNear(memory);
    return gpu->AddressOf(memory);
  }
};

}  // namespace

LocalDevice& TransferDriver::RunnerOf(const Launch& launch) {
  LocalDevice* const own = devices_.Find(launch.device);
  FERRY_CHECK(own != nullptr);
  if (launch.route != Route::kLocal) return *own;
  // A GPU that writes to the other is faster than one that reads from it, the more so the smaller
  // the steps are.
  LocalDevice* const other = devices_.Find(launch.remote_device);
  return other->gpu != nullptr ? *other : *own;
}

std::optional<TransferDriver::Showing> TransferDriver::NextToShow(const Launch& launch,
                                                                  CudaDevice& gpu) const {
  const auto of_ours = [&](const Layout& layout) -> std::optional<Showing> {
    for (const Range& extent : layout.extents()) {
      const Arena& arena = *sessions_.FindArena(extent.arena);
      if (arena.kind == MemoryKind::kMemfd && !arena.registration_tried) {
        return Showing{std::nullopt, arena.id, nullptr};
      }
      if (gpu.WantsOpening(*arena.mapping)) return Showing{std::nullopt, arena.id, &gpu};
    }
    return std::nullopt;
  };
  if (auto own = of_ours(launch.layout)) return own;
  if (launch.route == Route::kLocal) return of_ours(launch.remote_layout);
  for (const Range& extent : launch.remote_layout.extents()) {
    const DeviceMemory* const mapping = peer_arenas_.Find(launch.peer, extent.arena);
    if (mapping != nullptr && gpu.WantsOpening(*mapping)) {
      return Showing{launch.peer, extent.arena, &gpu};
    }
  }
  return std::nullopt;
}

bool TransferDriver::IsShown(Launch& launch, LocalDevice& runner) {
  if (runner.gpu == nullptr || launch.role != LaunchRole::kCopy) return true;
  const std::optional<Showing> next = NextToShow(launch, *runner.gpu);
  if (!next.has_value()) return true;
  // An entry stays until the arena was tried, even if no launch waits any more.
  const auto [waiting, first] = showing_.try_emplace(*next);
  waiting->second.push_back(std::move(launch));
  if (!first) return false;
  if (next->gpu != nullptr) {
    OpenOn(*next);
  } else {
    RegisterWith(next->arena, *runner.gpu);
  }
  return false;
}

// Both run on the memory thread that also unmaps the memory, so the memory is still mapped. An
// arena of a peer is held by a pin of ours.
void TransferDriver::RegisterWith(ArenaId id, CudaDevice& gpu) {
  Arena* const arena = sessions_.FindArena(id);
  devices_.Find(arena->device)->memory->Post([this, id, memory = arena->mapping.get(), gpu = &gpu] {
    auto pin = gpu->Register(*memory, /*read_only=*/false);
    if (pin.ok()) {
      memory->Keep(*std::move(pin));
    } else {
      FERRY_LOG_LIMITED(warn, "gpu.pin", LogFields("arena", id),
                        "it is copied by way of the driver's buffers, which is slower: {}",
                        std::string(pin.status().message()));
    }
    control_.Post([this, id] {
      if (Arena* const found = sessions_.FindArena(id); found != nullptr)
        found->registration_tried = true;
      OnShown({std::nullopt, id, nullptr});
    });
  });
}

void TransferDriver::OpenOn(const Showing& shown) {
  const DeviceMemory* pinned = nullptr;
  const DeviceMemory* memory = nullptr;
  Executor* thread = devices_.list.front()->memory.get();
  if (shown.peer.has_value()) {
    memory = pinned = peer_arenas_.Pin(*shown.peer, shown.arena);
  } else {
    const Arena& arena = *sessions_.FindArena(shown.arena);
    memory = arena.mapping.get();
    thread = devices_.Find(arena.device)->memory.get();
  }
  thread->Post([this, shown, memory, pinned] {
    if (const absl::Status opened = shown.gpu->Open(*memory); !opened.ok()) {
      FERRY_LOG_LIMITED(warn, "gpu.open", LogFields("arena", shown.arena),
                        "what GPU {} copies of it goes by way of the host, which is slower: {}",
                        shown.gpu->info().uuid_text(), std::string(opened.message()));
    }
    control_.Post([this, shown, pinned] {
      if (pinned != nullptr) Unpin({pinned});
      OnShown(shown);
    });
  });
}

void TransferDriver::OnShown(const Showing& shown) {
  const auto waiting = showing_.find(shown);
  if (waiting == showing_.end()) return;
  std::vector<Launch> launches = std::move(waiting->second);
  showing_.erase(waiting);
  StartSoon(std::move(launches), absl::OkStatus());
}

void TransferDriver::StartSoon(std::vector<Launch> launches, const absl::Status& status) {
  for (Launch& launch : launches) starting_.emplace_back(std::move(launch), status);
}

void TransferDriver::StartSome() {
  for (size_t left = kStartsAtOnce; left > 0 && !starting_.empty(); --left) {
    auto [launch, status] = std::move(starting_.front());
    starting_.pop_front();
    if (status.ok()) {
      Start(std::move(launch));
    } else {
      engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt, status);
    }
  }
}

absl::StatusOr<bool> TransferDriver::Resolve(const Launch& launch, const LocalDevice& runner,
                                             TransportOp& op) {
  op.transfer = launch.transfer;
  op.attempt = launch.attempt;
  op.role = launch.role;
  op.peer = launch.peer;
  op.remote_device = launch.remote_device;
  op.priority = launch.priority;
  op.prompt = launch.prompt;
  op.tag = launch.tag;
  Reach reach{runner.gpu};
  Arena* arena = nullptr;  // the arena of the last extent
  std::byte* begin = nullptr;
  const auto address = [&](const Range& extent) {
    if (arena == nullptr || arena->id != extent.arena) {
      arena = sessions_.FindArena(extent.arena);
      FERRY_CHECK(arena != nullptr);  // pinned since posting
      begin = reach.Begin(*arena->mapping);
    }
    return begin + extent.offset;
  };
  absl::InlinedVector<std::byte*, 1> own;
  for (const Range& extent : launch.layout.extents()) own.push_back(address(extent));

  if (launch.armed.has_value()) {
    ASSIGN_OR_RETURN(op.prepared, ResolveEnds(launch));
    op.prepared->silent = runner.gpu != nullptr;
    // On mapped only the destination copies.
    if (launch.route == Route::kMapped && launch.role == LaunchRole::kSend) return true;
  }
  if (launch.role != LaunchRole::kCopy) {
    op.layout = launch.layout;
    op.extents = std::move(own);
    return true;
  }

  absl::InlinedVector<const std::byte*, 1> remote;
  const DeviceMemory* mapping = nullptr;  // the mapping of the last extent
  ArenaId mapped;
  for (const Range& extent : launch.remote_layout.extents()) {
    if (launch.route == Route::kLocal) {
      remote.push_back(address(extent));
      continue;
    }
    if (mapping == nullptr || mapped != extent.arena) {
      mapping = peer_arenas_.Find(launch.peer, extent.arena);
      if (mapping == nullptr) return false;
      mapped = extent.arena;
      begin = reach.Begin(*mapping);
    }
    if (extent.length > mapping->bytes() || extent.offset > mapping->bytes() - extent.length) {
      return Error(absl::StatusCode::kInternal, Reason::kProtocolError,
                   absl::StrCat(NodeName(launch.peer), " offered bytes [", extent.offset, ", +",
                                extent.length, ") outside ", extent.arena.ToString(),
                                ", which has ", mapping->bytes()));
    }
    remote.push_back(begin + extent.offset);
  }
  RETURN_IF_ERROR(reach.reached);
  op.copy.emplace(launch.remote_layout, std::move(remote), launch.layout, std::move(own));
  op.copy->SetByEngine(reach.by_engine);
  op.copy->SetSlowRoad(reach.slow_road);
  return true;
}

std::vector<const DeviceMemory*> TransferDriver::PinRemote(const Launch& launch) {
  std::vector<const DeviceMemory*> pins;
  if (launch.route != Route::kMapped || launch.role != LaunchRole::kCopy) return pins;
  std::optional<ArenaId> last;
  for (const Range& extent : launch.remote_layout.extents()) {
    if (last == extent.arena) continue;
    last = extent.arena;
    pins.push_back(peer_arenas_.Pin(launch.peer, extent.arena));
  }
  return pins;
}

PreparedBatch* TransferDriver::FindPrepared(TransferId transfer, uint32_t batch) {
  // The session and its record of the batch stay until the transfer is over.
  return sessions_.Find(SessionOf(transfer))->prepared().Find(batch)->batch.get();
}

absl::StatusOr<PreparedEnds> TransferDriver::ResolveEnds(const Launch& launch) {
  PreparedEnds ends;
  const Armed& armed = *launch.armed;
  ends.own = FindPrepared(launch.transfer, armed.batch);
  switch (TraitsOf(launch.route).fired_by) {
    case FiredBy::kBatches:
      ends.source = FindPrepared(armed.source, armed.source_batch);
      return ends;
    case FiredBy::kGroups:
      ends.bundle = armed.bundle;
      ends.place = armed.place;
      return ends;
    case FiredBy::kSlot:
      break;
    case FiredBy::kNobody:
    case FiredBy::kMessages:
    case FiredBy::kGo:
      return ends;
  }
  const auto unavailable = [&](absl::string_view why) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                 absl::StrCat("arm ", launch.transfer.ToString(), " with ", NodeName(launch.peer),
                              ": ", why));
  };
  ends.slot = armed.slot;
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
  for (auto entry = starting_.begin(); entry != starting_.end(); ++entry) {
    if (entry->first.transfer != transfer) continue;
    *attempt = entry->first.attempt;
    starting_.erase(entry);
    return true;
  }
  return stop(fetching_) || stop(showing_);
}

void TransferDriver::Start(Launch&& launch) {
  LocalDevice& runner = RunnerOf(launch);
  if (!IsShown(launch, runner)) return;
  TransportOp op;
  const absl::StatusOr<bool> resolved = Resolve(launch, runner, op);
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
      runner.gpu == nullptr && launch.layout.stretches() <= kInlineStretches &&
      launch.remote_layout.stretches() <= kInlineStretches) {
    return CopyInline(launch, op);
  }
  Transport* const transport = runner.TransportOf(launch.route, launch.armed.has_value());
  if (transport != nullptr) return GiveToLane(launch, runner, transport, std::move(op));
  engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt,
                       Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                             absl::StrCat("this daemon has not opened ", RouteName(launch.route))));
}

void TransferDriver::CopyInline(const Launch& launch, TransportOp& op) {
  while (!op.copy->AtEnd()) {
    const CopyPiece piece = op.copy->Next();
    memcpy(piece.destination, piece.source, piece.size);
  }
  absl::Status status;
  if (launch.route == Route::kMapped) status = hooks_.still_valid(launch.peer);
  engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt, status);
}

void TransferDriver::GiveToLane(const Launch& launch, LocalDevice& runner, Transport* transport,
                                TransportOp op) {
  running_[launch.transfer] = {&runner, transport, launch.attempt, PinRemote(launch)};
  auto& launches = lane_work_[&runner].launches;
  const auto of = std::find_if(launches.begin(), launches.end(), [&](const LaneLaunches& entry) {
    return entry.transport == transport;
  });
  LaneLaunches& entry =
      of != launches.end()
          ? *of
          : launches.emplace_back(LaneLaunches{transport, TwoSided(launch.route), {}});
  entry.ops.push_back(std::move(op));
}

void TransferDriver::Unpin(const std::vector<const DeviceMemory*>& pins) {
  for (const DeviceMemory* pinned : pins) {
    if (auto mapping = peer_arenas_.Unpin(pinned)) DropMapping(std::move(mapping));
  }
}

// --- Groups, by CommTable.

CommTable::Hooks TransferDriver::CommHooks() {
  CommTable::Hooks hooks;
  hooks.made_id = [this](const Clique& clique, uint32_t attempt, std::string unique_id) {
    engine_.OnCommunicatorId(control_.Now(), clique, attempt, std::move(unique_id));
  };
  hooks.opened = [this](const Clique& clique, uint32_t attempt) {
    engine_.OnCommunicatorOpened(control_.Now(), clique, attempt);
  };
  hooks.failed = [this](const Clique& clique, uint32_t attempt, const absl::Status& why) {
    engine_.OnCommunicatorFailed(control_.Now(), clique, attempt, why);
  };
  hooks.group_over = [this](uint64_t group, const absl::Status& status) {
    FlightRecorder::Get().Record("group.over", group, static_cast<uint64_t>(status.code()), 0,
                                 status.ok() ? "" : ReasonName(ReasonOf(status)));
    group_ranges_.erase(group);
    engine_.OnGroupDone(control_.Now(), group, status, &settling_);
  };
  hooks.evict = [this](const Clique& clique, bool busy) {
    engine_.EvictCommunicator(control_.Now(), clique, busy);
  };
  hooks.incarnation = [this](GlobalDeviceId device) {
    const auto owner = engine_.devices().owner.find(device);
    // The node may have left since the opening was ordered; that will end the opening.
    return owner == engine_.devices().owner.end() ? Incarnation()
                                                  : hooks_.incarnation(owner->second);
  };
  hooks.max_ctas = hooks_.max_ctas;
  return hooks;
}

void TransferDriver::OnGroupsOver(std::vector<std::pair<uint64_t, absl::Status>> over) {
  home_.Check();
  comms_.OnGroupsOver(std::move(over));
  const std::vector<TransferId> settling = std::exchange(settling_, {});
  absl::Span<const TransferId> left = settling;
  while (!left.empty()) {
    engine_.GoOn(control_.Now(), left.first(std::min(kPostsAtOnce, left.size())));
    left.remove_prefix(std::min(kPostsAtOnce, left.size()));
    if (!left.empty()) CarryPart();
  }
}

GroupPart TransferDriver::PartOf(bool send, const Layout& layout, uint64_t offset, uint64_t bytes) {
  GroupPart part{send, bytes, LayoutCursor(layout), {}};
  part.cursor.Seek(offset);
  for (const Range& extent : layout.extents()) {
    const Arena* const arena = sessions_.FindArena(extent.arena);
    FERRY_CHECK(arena != nullptr);  // pinned since posting
    part.extents.push_back(arena->mapping->data() + extent.offset);
  }
  return part;
}

std::vector<GroupPart> TransferDriver::PartsOf(const GroupLaunch& launch) {
  std::vector<GroupPart> parts;
  parts.reserve(launch.chunks.size());
  for (const GroupChunk& chunk : launch.chunks) {
    if (chunk.bundle != 0) continue;  // the lane has the halves of a bundle
    parts.push_back(PartOf(chunk.side == Side::kSend, chunk.layout, chunk.offset, chunk.bytes));
  }
  return parts;
}

void TransferDriver::LaunchGroup(const GroupLaunch& launch) {
  uint64_t bytes = 0;
  for (const GroupChunk& chunk : launch.chunks) bytes += chunk.bytes;
  const std::string name = absl::StrCat("GPUs ", launch.clique.low.value(), " and ",
                                        launch.clique.high.value(), ", group ", launch.number);
  FlightRecorder::Get().Record("group.run", launch.ticket, launch.device.value(), bytes, name);
  if (ProfilerRange::IsProfiled()) {
    group_ranges_[launch.ticket] =
        ProfilerRange([&] { return absl::StrCat(name, ", ", bytes, " bytes"); });
  }
  comms_.Launch(launch, PartsOf(launch));
}

absl::Status TransferDriver::WarmComm(const Clique& clique) {
  home_.Check();
  return engine_.WarmCommunicator(control_.Now(), clique);
}

absl::StatusOr<uint32_t> TransferDriver::EvictComm(const Clique& clique) {
  home_.Check();
  ASSIGN_OR_RETURN(const uint32_t attempt, comms_.NewestOf(clique));
  engine_.EvictCommunicator(control_.Now(), clique);
  return attempt;
}

absl::StatusOr<uint32_t> TransferDriver::AbortComm(const Clique& clique, uint32_t attempt) {
  home_.Check();
  ASSIGN_OR_RETURN(attempt, comms_.Named(clique, attempt));
  engine_.OnCommunicatorFailed(control_.Now(), clique, attempt,
                               Error(absl::StatusCode::kAborted, Reason::kCommAborted,
                                     "an operator wants it (ferryctl comms abort)"));
  return attempt;
}

}  // namespace ferry
