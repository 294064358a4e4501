// SPDX-License-Identifier: Apache-2.0
#include "client/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <system_error>
#include <thread>

#include "base/limit_text.h"
#include "client/session.h"
#include "client/signals.h"
#include "device/huge_pages.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace ferry::client {
namespace {

constexpr uint64_t kPage = 4096;
// Bytes that one call collapses: a signal, even one that kills, has to wait until the call returns.
constexpr uint64_t kCollapsed = 64ull << 20;
// Below this size a second thread costs more than it saves.
constexpr uint64_t kPopulateInTwo = 32ull << 20;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

StatusPtr NoMemory(const Session& session, uint64_t bytes, uint64_t device, const char* step,
                   int error) {
  StatusPtr status = ErrnoError(kResourceExhausted, kReasonDeviceMemory,
                                MakingArena(bytes, device) + ": " + step, error);
  status->message += "; " + session.ArenaUse();
  return status;
}

int SealedMemfd(uint64_t bytes, const char** step) {
  *step = "memfd_create";
  int fd = memfd_create("ferry-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd < 0 && errno == EINVAL) {  // a kernel before 6.3
    fd = memfd_create("ferry-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (fd < 0) return -1;
  *step = "ftruncate";
  rlimit limit{};  // beyond this limit the call raises SIGXFSZ in the application
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) {
    close(fd);
    errno = EFBIG;
    return -1;
  }
  bool done = ftruncate(fd, static_cast<off_t>(bytes)) == 0;
  if (done) {
    *step = "sealing";
    done = fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
  }
  if (done) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// Makes as much of the range as possible of huge pages, whatever tmpfs is told to use. The kernel
// collapses no range without pages, so one page is touched: a different one each time, because a
// policy that interleaves NUMA nodes goes by the page's number. Best effort: a kernel before 6.1
// cannot do it, and memory may be fragmented.
void CollapseRange(char* data, uint64_t offset, uint64_t bytes) {
  const uint64_t first = (offset + kHugePage - 1) / kHugePage * kHugePage;
  const uint64_t last = (offset + bytes) / kHugePage * kHugePage;
  if (first >= last) return;
  for (uint64_t begin = first; begin < last; begin += kCollapsed) {
    const uint64_t end = std::min(begin + kCollapsed, last);
    for (uint64_t at = begin; at < end; at += kHugePage) {
      char* const page = data + at + at / kHugePage % (kHugePage / kPage) * kPage;
      if (madvise(page, kPage, MADV_POPULATE_WRITE) != 0) return;
    }
    if (madvise(data + begin, end - begin, MADV_COLLAPSE) != 0 && errno != EAGAIN) return;
  }
}

// Returns 0, or errno.
int PopulateRange(int fd, char* data, uint64_t offset, uint64_t bytes) {
  CollapseRange(data, offset, bytes);
  while (madvise(data + offset, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (errno != EINVAL) return errno;
    // A kernel before 5.14: allocates the pages; the mapping's faults will then be minor.
    return fallocate(fd, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  }
  return 0;
}

int Populate(int fd, char* data, uint64_t bytes) {
  const uint64_t half = bytes / 2 / kHugePage * kHugePage;
  if (bytes < kPopulateInTwo || std::thread::hardware_concurrency() < 2) {
    return PopulateRange(fd, data, 0, bytes);
  }
  int second = 0;
  std::thread helper;
  const StatusPtr alone = StartThread(
      "ferry-populate", [&] { second = PopulateRange(fd, data, half, bytes - half); }, &helper);
  if (alone != nullptr) return PopulateRange(fd, data, 0, bytes);
  const int first = PopulateRange(fd, data, 0, half);
  helper.join();
  return first != 0 ? first : second;
}

// `connection` knows the arena as `id`, or has refused it. The word of an older connection is
// ignored.
void SetKnown(ferry_arena* arena, const Connection& connection, uint64_t id, StatusPtr refused) {
  std::lock_guard lock(arena->mutex);
  if (connection.number() < arena->connection) return;
  arena->connection = connection.number();
  arena->id = id;
  arena->refused = std::move(refused);
}

ArenaRequest RequestOf(const ferry_arena& arena) {
  ArenaRequest request{arena.device, arena.bytes, arena.imported, arena.memory};
  if (arena.memory == ArenaMemory::kCudaVmm) {
    for (const CudaSegment& segment : arena.segments)
      request.segment_bytes.push_back(segment.bytes);
  }
  request.ipc_handle = arena.ipc_handle;
  request.ipc_offset = arena.ipc_offset;
  return request;
}

std::vector<int> DescriptorsOf(const ferry_arena& arena) {
  std::vector<int> fds;
  for (const CudaSegment& segment : arena.segments) fds.push_back(segment.fd);
  return fds;
}

// Shows the arena to a daemon that has come back.
void ShowAgain(ferry_arena* arena, Connection& connection) {
  Connection::RegisteredArena registered;
  StatusPtr refused;
  if (arena->released) {
    refused = Error(kNotFound, kReasonIdStale, "the arena was released");
  } else if (arena->memory == ArenaMemory::kCudaAllocate) {
    // The daemon was lost before it answered. Whoever makes the arena is told so; there is nothing
    // to show.
    refused = Error(kUnavailable, kReasonDaemonLost, "the daemon was lost before it allocated");
  } else {
    refused = connection.RegisterArena(RequestOf(*arena), DescriptorsOf(*arena), &registered);
    if (refused != nullptr) {
      refused->message =
          "the daemon came back and did not take the arena again: " + refused->message;
      // The caller that is told has named the arena, but none of the fields that it was registered
      // with.
      if (refused->reason == kReasonFieldInvalid)
        refused->violations = {{"arena", refused->message}};
    }
  }
  SetKnown(arena, connection, registered.id, std::move(refused));
}

// Tells the connection that knows the arena, if it is still there, to forget it. The daemon does so
// at the end of the last transfer that uses the arena; nobody here waits for that.
void Withdraw(ferry_arena* arena) {
  Session& session = *arena->session;
  if (arena->told_as != 0) session.Forget(arena->told_as);
  uint64_t number;
  {
    std::lock_guard lock(arena->mutex);
    number = arena->connection;
  }
  if (arena->released || arena->id == 0) return;
  if (const std::shared_ptr<Connection> connection = session.Find(number)) {
    connection->ReleaseArena(arena->id, arena->bytes, /*freed=*/true);
  }
}

// Maps `memfd`, populates it if asked, and shows it to the daemon.
StatusPtr MakeArena(const std::shared_ptr<Session>& session, uint64_t device, int memfd,
                    uint64_t bytes, bool imported, bool populate,
                    std::unique_ptr<ferry_arena>* made) {
  void* data = MapShared(bytes, PROT_READ | PROT_WRITE, memfd);
  if (data == MAP_FAILED) {
    const int error = errno;
    if (error == ENOMEM) return NoMemory(*session, bytes, device, "mapping it", error);
    return BadField(
        MakingArena(bytes, device), imported ? "memfd" : "bytes",
        "cannot be mapped: " + std::generic_category().message(error) + LimitText(error));
  }
  auto arena = std::make_unique<ferry_arena>(session, device, bytes, imported);
  arena->data = data;
  arena->segments = {{-1, bytes}};
  arena->mapped = true;
  const auto touch = [&]() -> StatusPtr {
    const int failed = populate ? Populate(memfd, static_cast<char*>(data), bytes) : 0;
    return failed == 0 ? nullptr : NoMemory(*session, bytes, device, "populating it", failed);
  };
  // Populates first, so that the daemon enters the pages into its own page table when it maps them.
  // Memory beyond the quota is shown first: a refusal must not cost the node this memory.
  const bool fits = bytes <= session->ArenaBytesLeft();
  StatusPtr error = fits ? touch() : nullptr;
  if (error == nullptr) error = ShowArena(arena.get(), {memfd});
  if (error == nullptr && !fits) error = touch();  // another thread has released memory meanwhile
  if (error != nullptr) {
    FreeArena(arena.release());
    return error;
  }
  *made = std::move(arena);
  return nullptr;
}

StatusPtr CheckBytes(uint64_t bytes, uint64_t device) {
  if (bytes != 0 && bytes <= static_cast<uint64_t>(INT64_MAX)) return nullptr;
  return BadField(MakingArena(bytes, device), "bytes",
                  "is " + std::to_string(bytes) + ": it must be between 1 and 2^63 - 1");
}

StatusPtr CheckInside(const ferry_arena& arena, uint64_t offset, uint64_t bytes,
                      const std::string& doing) {
  if (offset <= arena.bytes && bytes <= arena.bytes - offset) return nullptr;
  return Error(kInvalidArgument, kReasonRangeInvalid,
               doing + ": " + std::to_string(bytes) + " bytes from " + std::to_string(offset) +
                   " are not inside its " + std::to_string(arena.bytes));
}

}  // namespace

std::string MakingArena(uint64_t bytes, uint64_t device) {
  return "making an arena of " + std::to_string(bytes) + " bytes on device " +
         std::to_string(device);
}

StatusPtr ShowArena(ferry_arena* arena, const std::vector<int>& fds) {
  Session& session = *arena->session;
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(session.Connected(&connection));
  if (session.reattaches()) {
    for (size_t i = 0; i < fds.size(); ++i) {
      int& kept = arena->segments[i].fd;
      kept = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
      if (kept < 0) {
        return ErrnoError(kResourceExhausted, kReasonInternal,
                          MakingArena(arena->bytes, arena->device) + ": keeping its descriptor",
                          errno);
      }
    }
    arena->told_as = session.TellAgain([arena](Connection& next) { ShowAgain(arena, next); });
  }
  Connection::RegisteredArena registered;
  FERRY_CLIENT_RETURN_IF_ERROR(
      session.OrCause(*connection, connection->RegisterArena(RequestOf(*arena), fds, &registered)));
  if (arena->memory == ArenaMemory::kCudaAllocate) {
    // The next daemon is given the allocation as if it were the application's own. Not if the next
    // daemon is there already: it was shown nothing.
    StatusPtr lost = session.IfCurrent(*connection, [&] {
      arena->memory = ArenaMemory::kCudaVmm;
      arena->segments = {{registered.fd, registered.mapped_bytes}};
    });
    if (lost != nullptr) {
      if (registered.fd >= 0) close(registered.fd);
      return lost;
    }
    if (registered.fd < 0 || registered.mapped_bytes < arena->bytes) {
      return Error(kInternal, kReasonProtocol,
                   MakingArena(arena->bytes, arena->device) +
                       ": the daemon's answer lacks the allocation, or it is too short");
    }
  }
  SetKnown(arena, *connection, registered.id, nullptr);
  return nullptr;
}

StatusPtr CreateArena(const std::shared_ptr<Session>& session, uint64_t device, uint64_t bytes,
                      unsigned flags, std::unique_ptr<ferry_arena>* arena) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->Check());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckBytes(bytes, device));
  if ((flags & ~static_cast<unsigned>(FERRY_ARENA_NO_POPULATE)) != 0) {
    return BadField(MakingArena(bytes, device), "flags",
                    "is " + std::to_string(flags) + ", of which not all are known");
  }
  const DeviceInfo* known = session->FindDevice(device);
  if (known != nullptr && known->kind == kGpuDevice) {
    return CreateCudaArena(session, *known, bytes, arena);
  }
  const char* step;
  const Fd memfd(SealedMemfd(bytes, &step));
  if (memfd.get() < 0) return NoMemory(*session, bytes, device, step, errno);
  return MakeArena(session, device, memfd.get(), bytes, false,
                   (flags & FERRY_ARENA_NO_POPULATE) == 0, arena);
}

StatusPtr ImportArena(const std::shared_ptr<Session>& session, uint64_t device, int memfd,
                      uint64_t bytes, std::unique_ptr<ferry_arena>* arena) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->Check());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckBytes(bytes, device));
  if (const DeviceInfo* known = session->FindDevice(device);
      known != nullptr && known->kind == kGpuDevice) {
    return BadField(MakingArena(bytes, device), "device",
                    "is a GPU, and a memfd is memory of the host; see ferry_arena_import_cuda");
  }
  return MakeArena(session, device, memfd, bytes, true, false, arena);
}

StatusPtr ReleaseArena(ferry_arena* arena) {
  std::shared_ptr<Connection> connection;
  FERRY_CLIENT_RETURN_IF_ERROR(arena->session->Connected(&connection));
  if (StatusPtr refused = CheckArena(*arena)) {
    return arena->released.exchange(true) ? std::move(refused) : nullptr;
  }
  FERRY_CLIENT_RETURN_IF_ERROR(arena->session->OrCause(
      *connection, connection->ReleaseArena(arena->id, arena->bytes, /*freed=*/false)));
  arena->released = true;
  return nullptr;
}

void FreeArena(ferry_arena* arena) {
  Withdraw(arena);
  if (arena->mapped && arena->cuda_device >= 0) {
    UnmapSegments(reinterpret_cast<uint64_t>(arena->data), arena->segments);
  } else if (arena->mapped) {
    munmap(arena->data, arena->bytes);
  }
  for (const CudaSegment& segment : arena->segments) {
    if (segment.fd >= 0) close(segment.fd);
  }
  delete arena;
}

StatusPtr ReadArena(const ferry_arena& arena, uint64_t offset, void* to, uint64_t bytes) {
  const std::string doing = "reading arena " + std::to_string(arena.id);
  FERRY_CLIENT_RETURN_IF_ERROR(CheckInside(arena, offset, bytes, doing));
  const char* from = static_cast<const char*>(arena.data) + offset;
  if (arena.cuda_device >= 0) {
    return CopyFromDevice(arena.cuda_device, to, reinterpret_cast<uint64_t>(from), bytes, doing);
  }
  memcpy(to, from, bytes);
  return nullptr;
}

StatusPtr WriteArena(const ferry_arena& arena, uint64_t offset, const void* from, uint64_t bytes) {
  const std::string doing = "writing arena " + std::to_string(arena.id);
  FERRY_CLIENT_RETURN_IF_ERROR(CheckInside(arena, offset, bytes, doing));
  char* to = static_cast<char*>(arena.data) + offset;
  if (arena.cuda_device >= 0) {
    return CopyToDevice(arena.cuda_device, reinterpret_cast<uint64_t>(to), from, bytes, doing);
  }
  memcpy(to, from, bytes);
  return nullptr;
}

StatusPtr CheckArena(const ferry_arena& arena) {
  if (arena.id != 0) return nullptr;
  std::lock_guard lock(arena.mutex);
  return Copy(arena.refused);
}

}  // namespace ferry::client
