// SPDX-License-Identifier: Apache-2.0
// TransferDriver's launches: which lane runs a launch, what memory it needs there, and its start.
#include <string.h>

#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
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
      if (arena.kind == MemoryKind::kMemfd && !arena.pin_tried) {
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
    PinOn(next->arena, *runner.gpu);
  }
  return false;
}

// Both run on the memory thread that also unmaps the memory, so the memory is still mapped. An
// arena of a peer is held by a pin of ours.
void TransferDriver::PinOn(ArenaId id, CudaDevice& gpu) {
  Arena* const arena = sessions_.FindArena(id);
  devices_.Find(arena->device)->memory->Post([this, id, memory = arena->mapping.get(), gpu = &gpu] {
    auto pin = gpu->Pin(*memory, /*read_only=*/false);
    if (pin.ok()) {
      memory->Keep(*std::move(pin));
    } else {
      FERRY_LOG_LIMITED(warn, "gpu.pin", LogFields("arena", id),
                        "it is copied by way of the driver's buffers, which is slower: {}",
                        std::string(pin.status().message()));
    }
    control_.Post([this, id] {
      if (Arena* const kept = sessions_.FindArena(id); kept != nullptr) kept->pin_tried = true;
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
  ends.own = FindPrepared(launch.transfer, launch.armed->batch);
  if (launch.route == Route::kLocal) {
    ends.source = FindPrepared(launch.armed->source, launch.armed->source_batch);
    return ends;
  }
  if (launch.route == Route::kTcp) return ends;
  const auto unavailable = [&](absl::string_view why) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                 absl::StrCat("arm ", launch.transfer.ToString(), " with ", NodeName(launch.peer),
                              ": ", why));
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
  for (auto entry = starting_.begin(); entry != starting_.end(); ++entry) {
    if (entry->first.transfer != transfer) continue;
    *attempt = entry->first.attempt;
    starting_.erase(entry);
    return true;
  }
  return stop(fetching_) || stop(showing_);
}

void TransferDriver::Start(Launch&& launch) {
  if (launch.route == Route::kNccl) return ArmInBundle(launch);
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
      runner.gpu == nullptr && launch.layout.runs() <= kInlineRuns &&
      launch.remote_layout.runs() <= kInlineRuns) {
    while (!op.copy->AtEnd()) {
      const CopyPiece piece = op.copy->Next();
      memcpy(piece.destination, piece.source, piece.size);
    }
    absl::Status status;
    if (launch.route == Route::kMapped) status = hooks_.still_valid(launch.peer);
    engine_.OnLaunchDone(control_.Now(), launch.transfer, launch.attempt, status);
    return;
  }
  LocalDevice* const device = &runner;
  const Way way = launch.route == Route::kTcp   ? kTcp
                  : launch.armed.has_value()    ? kArmed
                  : launch.route == Route::kUcx ? kUcx
                                                : kCopy;
  if (TransportOf(*device, way) == nullptr) {
    engine_.OnLaunchDone(
        control_.Now(), launch.transfer, launch.attempt,
        Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
              absl::StrCat("this daemon has not opened ", RouteName(launch.route))));
    return;
  }
  running_[launch.transfer] = {device, way, launch.attempt, PinRemote(launch)};
  lane_work_[device].ops[way].push_back(std::move(op));
}

void TransferDriver::Unpin(const std::vector<const DeviceMemory*>& pins) {
  for (const DeviceMemory* pinned : pins) {
    if (auto mapping = peer_arenas_.Unpin(pinned)) DropMapping(std::move(mapping));
  }
}

}  // namespace ferry
