// SPDX-License-Identifier: Apache-2.0
// SessionTable's arenas: registering, releasing, and who holds how much.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "daemon/session/session_table.h"
#include "device/memfd.h"

namespace ferry {
namespace {

absl::Status WithHolders(const absl::Status& status, const std::string& holders) {
  return WithText(status, absl::StrCat(status.message(), "; largest holders: ", holders));
}

// The most allocations of a GPU arena: their descriptors fit one packet, here and between daemons.
constexpr size_t kMostSegments = Door::kMaxFds;

// How many arenas of the quota it counts for: one for each allocation, because each needs a
// descriptor of the daemon.
size_t ArenaSlots(const MemoryShare& memory) {
  return std::max<size_t>(memory.segment_bytes.size(), 1);
}

// How many bytes it takes of its device. CUDA's granules are 2 MiB.
uint64_t HeldBytes(const MemoryShare& memory) {
  if (memory.kind == MemoryKind::kCudaVmm) {
    uint64_t sum = 0;
    for (const uint64_t bytes : memory.segment_bytes) {
      sum = bytes > UINT64_MAX - sum ? UINT64_MAX : sum + bytes;
    }
    return sum;
  }
  constexpr uint64_t kGranule = uint64_t{2} << 20;
  if (memory.kind != MemoryKind::kCudaAllocate || memory.bytes > UINT64_MAX - kGranule) {
    return memory.bytes;
  }
  return (memory.bytes + kGranule - 1) / kGranule * kGranule;
}

}  // namespace

void SessionTable::OnRegister(Door::ConnectionId connection, SessionId session_id,
                              uint64_t sequence, const AttachRegisterArena& request,
                              ReceivedFds fds) {
  Session& session = *Find(session_id);
  LocalDevice* device = devices_.Find(request.device);
  if (device == nullptr) {
    return Refuse(
        connection, sequence,
        Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
              absl::StrCat("register an arena: ", request.device.ToString(), " is not a device of ",
                           options_.node, ", which has ", devices_.Shown())));
  }
  const uint64_t held = HeldBytes(request.memory);
  if (absl::Status refused = CheckRegister(session, *device, request, fds); !refused.ok()) {
    return Refuse(connection, sequence, std::move(refused));
  }
  const size_t slots = ArenaSlots(request.memory);
  if (absl::Status reserved = Reserve(session, held, slots); !reserved.ok()) {
    return Refuse(connection, sequence, WithHolders(reserved, LargestHolders()));
  }
  device->coming_bytes += held;
  device->memory->Post(
      [this, connection, session_id, sequence, request, device, fds = fds.TakeAll()]() mutable {
        auto mapping = device->Map(request.memory, std::move(fds), /*ours=*/true);
        control_.Post([this, connection, session_id, sequence, request,
                       mapping = std::move(mapping)]() mutable {
          OnMapped(connection, session_id, sequence, request, std::move(mapping));
        });
      });
}

absl::Status SessionTable::CheckRegister(const Session& session, const LocalDevice& device,
                                         const AttachRegisterArena& request,
                                         const ReceivedFds& fds) const {
  const MemoryShare& memory = request.memory;
  const auto invalid = [](absl::string_view field, const std::string& why) {
    return FieldError(field, absl::StrCat("register an arena: ", why));
  };
  if (device.gpu != nullptr && (session.features & kFeatureGpus) == 0) {
    return invalid("device_id",
                   absl::StrCat(device.id.ToString(),
                                " is a GPU, and this client's libferry does not know arenas of "
                                "GPUs (feature bit 8)"));
  }
  const bool memfd = memory.kind == MemoryKind::kMemfd;
  if (memory.kind == MemoryKind::kUnknown || memfd == (device.gpu != nullptr)) {
    return invalid("memory",
                   absl::StrCat(device.id.ToString(), " is a ",
                                device.gpu != nullptr
                                    ? "GPU: its memory is CUDA_ALLOCATE, CUDA_VMM or CUDA_IPC"
                                    : "host device: its memory is a memfd"));
  }
  const size_t expected = memfd                                 ? 1
                          : memory.kind == MemoryKind::kCudaVmm ? memory.segment_bytes.size()
                                                                : 0;
  if (fds.size() != expected) {
    return invalid(memfd ? "memory" : "segment_bytes",
                   absl::StrCat(expected == 1 ? std::string("one file descriptor")
                                              : absl::StrCat(expected, " file descriptors"),
                                " must come with the packet, ", fds.size(), " did"));
  }
  if (memory.segment_bytes.size() > kMostSegments) {
    return invalid("segment_bytes",
                   absl::StrCat("at most ", kMostSegments, " allocations make an arena, not ",
                                memory.segment_bytes.size()));
  }
  for (size_t i = 0; i < fds.size(); ++i) {
    // A descriptor of any other kind may take long to close, and those of mapped memory are closed
    // on a memory thread.
    if (memfd) {
      RETURN_IF_ERROR(OfField(Annotate(CheckMemfd(fds[i].get(), memory.bytes), "register an arena"),
                              memory.bytes == 0 ? "bytes" : "memory"));
    } else if (!MayBeGpuMemory(fds[i].get())) {
      return invalid(absl::StrCat("segment_bytes[", i, "]"),
                     absl::StrCat("descriptor ", i, " is not an allocation of a GPU"));
    }
  }
  const uint64_t taken = device.arena_bytes + device.coming_bytes;
  const uint64_t held = HeldBytes(memory);
  if (device.gpu != nullptr && (taken > options_.gpu_bytes || held > options_.gpu_bytes - taken)) {
    return Error(
        absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
        absl::StrCat(
            "register an arena of ", memory.bytes, " bytes",
            held == memory.bytes ? "" : absl::StrCat(" (", held, " in whole granules)"), " on ",
            device.id.ToString(), ": ", taken, " of ", options_.gpu_bytes,
            " bytes (limits.gpu_bytes) are taken; largest holders: ", LargestHolders(&device)));
  }
  return absl::OkStatus();
}

void SessionTable::OnMapped(Door::ConnectionId connection, SessionId session_id, uint64_t sequence,
                            const AttachRegisterArena& request,
                            absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping) {
  Session* session = Find(session_id);
  LocalDevice& device = *devices_.Find(request.device);
  const uint64_t held = HeldBytes(request.memory);
  device.coming_bytes -= held;
  if (session == nullptr || session->closing) {
    if (mapping.ok()) device.memory->Post([gone = *std::move(mapping)] {});
    return;
  }
  if (!mapping.ok()) {
    session->arenas().Unreserve(held, ArenaSlots(request.memory));
    GrantJobMemory();
    absl::Status why = mapping.status();
    if (why.code() == absl::StatusCode::kResourceExhausted) {
      why = WithHolders(why, LargestHolders(&device));
    }
    return Refuse(connection, sequence, OfField(Annotate(why, "register an arena"), "memory"));
  }
  auto arena = std::make_unique<Arena>();
  arena->id = ArenaId(next_arena_++);
  arena->session = session_id;
  arena->device = request.device;
  arena->bytes = request.memory.bytes;
  arena->held = held;
  arena->imported = request.imported;
  arena->kind = request.memory.kind;
  arena->slots = ArenaSlots(request.memory);
  arena->mapping = *std::move(mapping);
  Arena& added = session->arenas().Add(std::move(arena));
  arenas_[added.id] = &added;
  ++device.arenas;
  device.arena_bytes += added.held;
  FlightRecorder::Get().Record("arena.register", added.id.value(), session_id.value(), added.bytes);
  AttachArenaRegistered registered{added.id};
  std::vector<int> shown;
  if (added.kind == MemoryKind::kCudaAllocate) {
    registered.mapped_bytes = added.mapping->share().segment_bytes.front();
    shown = added.mapping->fds();
  } else if (added.kind == MemoryKind::kMemfd) {
    // Posted before the mapping can be destroyed, which is a later task of the same thread.
    device.memory->Post(
        [mapping = static_cast<HostMapping*>(added.mapping.get())] { mapping->Populate(); });
  }
  Reply(connection, {sequence, absl::OkStatus(), registered}, shown);
}

void SessionTable::OnRelease(Door::ConnectionId connection, Session& session, uint64_t sequence,
                             const AttachReleaseArena& request) {
  absl::StatusOr<std::unique_ptr<Arena>> arena =
      request.freed ? session.arenas().Free(request.arena) : session.arenas().Take(request.arena);
  if (!arena.ok()) return Refuse(connection, sequence, OfField(arena.status(), "arena_id"));
  if (*arena != nullptr) {
    LetGo(*std::move(arena));
    GrantJobMemory();
  }
  Reply(connection, {sequence, absl::OkStatus(), AttachArenaReleased{}});
}

void SessionTable::LetGo(std::unique_ptr<Arena> arena) {
  FlightRecorder::Get().Record("arena.release", arena->id.value(), arena->session.value(),
                               arena->bytes);
  arenas_.erase(arena->id);
  if (arena->awaited) return;
  if (arena->of_job) job_memory_ -= arena->held;
  LocalDevice& device = *devices_.Find(arena->device);
  --device.arenas;
  device.arena_bytes -= arena->held;
  hooks_.arena_gone(arena->id);
  device.memory->Post([mapping = std::move(arena->mapping)] {});
}

std::string SessionTable::LargestHolders(const LocalDevice* device) const {
  std::vector<std::pair<uint64_t, const Session*>> all;
  for (const auto& [id, session] : sessions_) {
    uint64_t bytes = session->use().bytes;
    if (device != nullptr) {
      bytes = 0;
      for (const Arena* arena : session->arenas().List()) {
        if (arena->device == device->id) bytes += arena->held;
      }
    }
    if (bytes > 0) all.emplace_back(bytes, session.get());
  }
  if (all.empty()) return "no session of this daemon";
  const size_t shown = std::min<size_t>(3, all.size());
  std::partial_sort(all.begin(), all.begin() + shown, all.end(), [](const auto& a, const auto& b) {
    return std::make_pair(b.first, a.second->id()) < std::make_pair(a.first, b.second->id());
  });
  all.resize(shown);
  return absl::StrJoin(all, ", ", [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second->id().ToString(), " (", entry.second->name(), ") ",
                    entry.first, " bytes");
  });
}

}  // namespace ferry
