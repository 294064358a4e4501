// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/nccl_register.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/fd.h"
#include "base/status.h"
#include "bench/gpu/nccl_copy.h"
#include "bench/gpu/peer_copy.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/child_process.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

using ::ferry::testing::GpuDriver;

constexpr uint64_t kGranule = uint64_t{2} << 20;
constexpr int kTimes = 8;  // sends of one order, so that who is told of them is little beside them
constexpr timeval kPatience = {60, 0};

struct Order {
  enum Kind : int { kOpen, kRegister, kDeregister, kMove } kind = kOpen;
  // kOpen only.
  ncclUniqueId id = {};
  uint64_t bytes = 0;
};

// What NCCL has for this, and Ferry does not call.
struct Registration {
  ncclResult_t (*Register)(ncclComm_t, void*, size_t, void**) = nullptr;
  ncclResult_t (*Deregister)(ncclComm_t, void*) = nullptr;
};

Registration Find(const NcclApi& nccl) {
  Registration found;
  void* const library = dlopen(nccl.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return found;
  found.Register = reinterpret_cast<decltype(found.Register)>(dlsym(library, "ncclCommRegister"));
  found.Deregister =
      reinterpret_cast<decltype(found.Deregister)>(dlsym(library, "ncclCommDeregister"));
  return found;
}

// One of the two, with memory that can be shared by descriptor.
class Rank {
 public:
  Rank(const GpuDriver& driver, const NcclApi& nccl, int rank)
      : driver_(driver), nccl_(nccl), registration_(Find(nccl)), rank_(rank) {}
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank() {
    MakeCurrent();
    if (comm_ != nullptr) nccl_.CommAbort(comm_);
    if (stream_ != nullptr) driver_.cuStreamDestroy(stream_);
    if (mapped_) driver_.cuMemUnmap(memory_, bytes_);
    if (memory_ != 0) driver_.cuMemAddressFree(memory_, bytes_);
  }

  absl::Status Obey(const Order& order) {
    MakeCurrent();
    switch (order.kind) {
      case Order::kOpen:
        return Open(order);
      case Order::kRegister:
        return Checked(
            registration_.Register(comm_, reinterpret_cast<void*>(memory_), bytes_, &handle_),
            "register memory");
      case Order::kDeregister:
        return Checked(registration_.Deregister(comm_, handle_), "deregister memory");
      case Order::kMove:
        return Move();
    }
    return absl::OkStatus();
  }

 private:
  void MakeCurrent() const { driver_.cuCtxSetCurrent(driver_.context(rank_)); }
  absl::Status Checked(ncclResult_t result, const char* doing) const {
    return result == kNcclSuccess ? absl::OkStatus() : NcclError(nccl_, result, doing);
  }
  absl::Status Checked(CUresult result, const char* doing) const {
    return FromCuda(driver_, result, doing);
  }

  absl::Status Open(const Order& order) {
    bytes_ = (order.bytes + kGranule - 1) / kGranule * kGranule;
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location = {CU_MEM_LOCATION_TYPE_DEVICE, rank_};
    wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    RETURN_IF_ERROR(Checked(driver_.cuMemAddressReserve(&memory_, bytes_, 0, 0, 0), "reserve"));
    RETURN_IF_ERROR(Checked(driver_.cuMemCreate(&handle, bytes_, &wanted, 0), "allocate"));
    const CUresult mapped = driver_.cuMemMap(memory_, bytes_, 0, handle, 0);
    RETURN_IF_ERROR(Checked(driver_.cuMemRelease(handle), "release a handle"));
    RETURN_IF_ERROR(Checked(mapped, "map memory"));
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    RETURN_IF_ERROR(Checked(driver_.cuMemSetAccess(memory_, bytes_, &access, 1), "open memory"));
    RETURN_IF_ERROR(
        Checked(driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "make a stream"));
    ncclConfig_t config = BlockingConfig(kRawCtas);
    return Checked(nccl_.CommInitRankConfig(&comm_, 2, order.id, rank_, &config),
                   "open a communicator");
  }

  absl::Status Move() {
    void* const memory = reinterpret_cast<void*>(memory_);
    for (int i = 0; i < kTimes; ++i) {
      const int other = 1 - rank_;
      RETURN_IF_ERROR(Checked(rank_ == 0
                                  ? nccl_.Send(memory, bytes_, kNcclBytes, other, comm_, stream_)
                                  : nccl_.Recv(memory, bytes_, kNcclBytes, other, comm_, stream_),
                              "send and receive"));
    }
    return Checked(driver_.cuStreamSynchronize(stream_), "await NCCL");
  }

  const GpuDriver& driver_;
  const NcclApi& nccl_;
  const Registration registration_;
  const int rank_;
  uint64_t bytes_ = 0;
  CUdeviceptr memory_ = 0;
  bool mapped_ = false;
  void* handle_ = nullptr;
  CUstream stream_ = nullptr;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

absl::StatusOr<Registered> MeasureRegistered(const GpuDriver& driver, const std::string& self,
                                             uint64_t bytes, int rounds) {
  ASSIGN_OR_RETURN(const NcclApi* const api, OwnNccl());
  const NcclApi& nccl = *api;
  const Registration registration = Find(nccl);
  if (registration.Register == nullptr || registration.Deregister == nullptr) {
    return Error(absl::StatusCode::kUnavailable, Reason::kRouteUnavailable,
                 absl::StrCat("NCCL ", nccl.version_text(), " has no ncclCommRegister"));
  }
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "make a socket pair", errno);
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof(kPatience));
  tools::SpawnOptions spawn;
  spawn.arguments = {self, "nccl-rank"};
  spawn.fd = theirs.get();
  ASSIGN_OR_RETURN(const tools::ChildProcess process, tools::ChildProcess::Spawn(spawn));
  theirs.Reset();

  Rank rank(driver, nccl, 0);
  // Both do it; until both have.
  const auto act = [&](const Order& order) -> absl::StatusOr<absl::Duration> {
    const int64_t start = tools::MonotonicNanoseconds();
    if (send(ours.get(), &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order)) {
      return ErrnoError(absl::StatusCode::kAborted, Reason::kInternal, "order a rank", errno);
    }
    RETURN_IF_ERROR(rank.Obey(order));
    char done = 0;
    if (recv(ours.get(), &done, 1, 0) != 1) {
      return Error(absl::StatusCode::kAborted, Reason::kInternal,
                   "the process of the other rank has failed, or did not answer in 60 s");
    }
    return absl::Nanoseconds(tools::MonotonicNanoseconds() - start) / kTimes;
  };
  Order order;
  order.bytes = bytes;
  if (const ncclResult_t made = nccl.GetUniqueId(&order.id); made != kNcclSuccess) {
    return NcclError(nccl, made, "make an id");
  }
  RETURN_IF_ERROR(act(order).status());
  std::vector<absl::Duration> plain, registered;
  for (int round = 0; round < rounds + 1; ++round) {
    order.kind = Order::kMove;
    ASSIGN_OR_RETURN(const absl::Duration before, act(order));
    order.kind = Order::kRegister;
    RETURN_IF_ERROR(act(order).status());
    order.kind = Order::kMove;
    RETURN_IF_ERROR(act(order).status());  // the first one may exchange what was registered
    ASSIGN_OR_RETURN(const absl::Duration after, act(order));
    order.kind = Order::kDeregister;
    RETURN_IF_ERROR(act(order).status());
    if (round == 0) continue;  // connections wake up
    plain.push_back(before);
    registered.push_back(after);
  }
  return Registered{tools::Median(plain), tools::Median(registered)};
}

int RunNcclRank(int socket) {
  std::string missing;
  const GpuDriver* const driver = GpuDriver::Get(&missing);
  const auto nccl = OwnNccl();
  if (driver == nullptr || driver->devices() < 2 || !nccl.ok()) return 1;
  Rank rank(*driver, **nccl, 1);
  Order order;
  while (recv(socket, &order, sizeof(order), 0) == sizeof(order)) {
    const absl::Status status = rank.Obey(order);
    if (!status.ok()) {
      std::fprintf(stderr, "the other rank: %s\n", std::string(status.message()).c_str());
      return 1;
    }
    const char done = 1;
    if (send(socket, &done, 1, MSG_NOSIGNAL) != 1) return 1;
  }
  return 0;
}

}  // namespace ferry::bench
