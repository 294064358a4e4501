// SPDX-License-Identifier: Apache-2.0
#include "daemon/session/arena_registrar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/field_error.h"
#include "base/flight_recorder.h"
#include "base/status.h"
#include "device/memfd.h"

namespace ferry {
namespace {

absl::Status NamingHolders(const absl::Status& status, const std::string& holders) {
  return WithText(status, absl::StrCat(status.message(), "; largest holders: ", holders));
}

// The most allocations of a GPU arena: their descriptors fit one packet, here and between daemons.
constexpr size_t kMostSegments = Door::kMaxFds;

// How many arenas of the quota it counts for: one for each allocation, because each needs a
// descriptor of the daemon.
size_t ArenaCount(const MemoryShare& memory) {
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

void ArenaRegistrar::Register(Session& session, const AttachRegisterArena& request, ReceivedFds fds,
                              Done done) {
  home_.Check();
  LocalDevice* device = parts_.devices.Find(request.device);
  if (device == nullptr) {
    return done(
        Error(absl::StatusCode::kNotFound, Reason::kDeviceUnknown,
              absl::StrCat("register an arena: ", request.device.ToString(), " is not a device of ",
                           options_.node, ", which has ", parts_.devices.Shown())));
  }
  const uint64_t held = HeldBytes(request.memory);
  if (absl::Status refused = Check(*device, request, fds); !refused.ok()) {
    return done(std::move(refused));
  }
  const size_t count = ArenaCount(request.memory);
  if (absl::Status reserved = parts_.job_memory.Reserve(session, held, count); !reserved.ok()) {
    return done(NamingHolders(reserved, parts_.sessions.LargestHolders()));
  }
  device->coming_bytes += held;
  device->memory->Post([this, id = session.id(), request, device, fds = fds.TakeAll(),
                        done = std::move(done)]() mutable {
    auto mapping = device->Map(request.memory, std::move(fds), /*ours=*/true);
    parts_.control.Post(
        [this, id, request, mapping = std::move(mapping), done = std::move(done)]() mutable {
          OnMapped(id, request, std::move(mapping), done);
        });
  });
}

absl::Status ArenaRegistrar::Check(const LocalDevice& device, const AttachRegisterArena& request,
                                   const ReceivedFds& fds) const {
  const MemoryShare& memory = request.memory;
  const auto invalid = [](absl::string_view field, const std::string& why) {
    return FieldError(field, absl::StrCat("register an arena: ", why));
  };
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
        absl::StrCat("register an arena of ", memory.bytes, " bytes",
                     held == memory.bytes ? "" : absl::StrCat(" (", held, " in whole granules)"),
                     " on ", device.id.ToString(), ": ", taken, " of ", options_.gpu_bytes,
                     " bytes (limits.gpu_bytes) are taken; largest holders: ",
                     parts_.sessions.LargestHolders(&device)));
  }
  return absl::OkStatus();
}

void ArenaRegistrar::OnMapped(SessionId id, const AttachRegisterArena& request,
                              absl::StatusOr<std::unique_ptr<DeviceMemory>> mapping,
                              const Done& done) {
  Session* const session = parts_.sessions.Find(id);
  LocalDevice& device = *parts_.devices.Find(request.device);
  const uint64_t held = HeldBytes(request.memory);
  device.coming_bytes -= held;
  if (session == nullptr || session->client_gone) {
    if (mapping.ok()) device.memory->Post([gone = *std::move(mapping)] {});
    return parts_.job_memory.OnFreed();
  }
  if (!mapping.ok()) {
    session->arenas().Unreserve(held, ArenaCount(request.memory));
    parts_.job_memory.OnFreed();
    absl::Status why = mapping.status();
    if (why.code() == absl::StatusCode::kResourceExhausted) {
      why = NamingHolders(why, parts_.sessions.LargestHolders(&device));
    }
    return done(OfField(Annotate(why, "register an arena"), "memory"));
  }
  auto arena = std::make_unique<Arena>();
  arena->session = id;
  arena->device = request.device;
  arena->bytes = request.memory.bytes;
  arena->held = held;
  arena->imported = request.imported;
  arena->kind = request.memory.kind;
  arena->count = ArenaCount(request.memory);
  arena->mapping = *std::move(mapping);
  const Arena& added = parts_.arenas.Add(session->arenas(), std::move(arena));
  FlightRecorder::Get().Record("arena.register", added.id.value(), id.value(), added.bytes);
  Registered registered{.answer = AttachArenaRegistered{added.id}, .fds = {}};
  if (added.kind == MemoryKind::kCudaAllocate) {
    registered.answer.mapped_bytes = added.mapping->share().segment_bytes.front();
    registered.fds = added.mapping->fds();
  } else if (added.kind == MemoryKind::kMemfd) {
    // Posted before the mapping can be destroyed, which is a later task of the same thread.
    device.memory->Post(
        [mapping = static_cast<HostMapping*>(added.mapping.get())] { mapping->Populate(); });
  }
  done(std::move(registered));
}

absl::Status ArenaRegistrar::Release(Session& session, const AttachReleaseArena& request) {
  home_.Check();
  ASSIGN_OR_RETURN(std::unique_ptr<Arena> arena, request.freed
                                                     ? session.arenas().Free(request.arena)
                                                     : session.arenas().Take(request.arena));
  if (arena != nullptr) {
    parts_.arenas.LetGo(std::move(arena));
    parts_.job_memory.OnFreed();
  }
  return absl::OkStatus();
}

}  // namespace ferry
