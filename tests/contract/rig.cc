// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/rig.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "absl/strings/match.h"
#include "base/check.h"
#include "base/status.h"
#include "tests/contract/nccl_rig.h"
#include "tests/contract/tcp_rig.h"
#include "transfer/pieces.h"

namespace ferry {

OpSink Answers::Sink() {
  return [this](std::vector<OpResult> results) {
    EXPECT_FALSE(in_call_) << "answered from inside Launch or Abort";
    EXPECT_FALSE(results.empty());
    MutexLock lock(mutex_);
    for (OpResult& result : results) {
      EXPECT_EQ(result.attempt, 1u);
      EXPECT_TRUE(answers_.try_emplace(result.transfer, result.status).second)
          << result.transfer << " was answered twice";
      order_.push_back(result.transfer);
    }
    came_.notify_all();
  };
}

absl::Status Answers::Await(TransferId transfer) {
  MutexLock lock(mutex_);
  while (answers_.find(transfer) == answers_.end()) came_.wait(mutex_);
  return answers_[transfer];
}

void Answers::AwaitCount(size_t count) {
  MutexLock lock(mutex_);
  while (answers_.size() < count) came_.wait(mutex_);
}

size_t Answers::count() {
  MutexLock lock(mutex_);
  return answers_.size();
}

std::vector<TransferId> Answers::order() {
  MutexLock lock(mutex_);
  return order_;
}

UniqueFd MakeArena(uint64_t bytes) {
  UniqueFd fd(memfd_create("contract", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  FERRY_CHECK(ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
  FERRY_CHECK(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  return fd;
}

std::unique_ptr<GpuStaging> StagingOf(Lane& lane, CudaDevice& gpu) {
  auto staging = gpu.MakeStaging(8 * HostStaging::kBlock);
  FERRY_CHECK(staging.ok());
  return std::make_unique<GpuStaging>(lane,
                                      GpuStaging::Parts{.out = gpu.MakeCopier(CopyUse::kStageOut),
                                                        .in = gpu.MakeCopier(CopyUse::kStageIn),
                                                        .memory = *staging,
                                                        .enter = [&gpu] { gpu.MakeCurrent(); }});
}

void FillRandom(std::byte* bytes, uint64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (; size >= 8; size -= 8, bytes += 8) {
    const uint64_t value = random();
    memcpy(bytes, &value, 8);
  }
  const uint64_t value = random();
  memcpy(bytes, &value, size);
}

Bytes::Bytes(std::initializer_list<std::pair<uint64_t, uint64_t>> ranges) {
  std::vector<Range> list;
  for (const auto& [offset, length] : ranges) list.push_back({ArenaId(1), offset, length});
  layout = Layout(std::move(list));
}

Rig::Rig(uint64_t arena_bytes, Gpus gpus) {
  std::vector<GpuInfo> found;
  if (gpus[0] || gpus[1]) {
    auto all = FindGpus(FAKE_CUDA_LIBRARY);
    FERRY_CHECK(all.ok() && all->size() == 2);
    found = *std::move(all);
  }
  for (int end : {0, 1}) {
    lanes_[end] = std::make_unique<Lane>(end == 0 ? "lane-0" : "lane-1", Lane::DefaultSpin());
    if (gpus[end]) {
      gpus_[end] =
          std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, found[end], std::vector<int>{0, 1});
      staging_[end] = StagingOf(*lanes_[end], *gpus_[end]);
      auto memory = gpus_[end]->Map({MemoryKind::kCudaAllocate, arena_bytes}, {});
      FERRY_CHECK(memory.ok());
      arenas_[end] = *std::move(memory);
      continue;
    }
    auto mapping =
        HostMapping::Map(MakeArena(arena_bytes), arena_bytes, HostMapping::Access::kReadWrite);
    FERRY_CHECK(mapping.ok());
    arenas_[end] = *std::move(mapping);
  }
}

std::unique_ptr<DeviceMemory> Rig::View(int from) {
  UniqueFd fd(dup(arenas_[from]->fds().front()));
  if (gpus_[from] != nullptr) {
    std::vector<UniqueFd> fds;
    fds.push_back(std::move(fd));
    auto view = gpus_[1 - from]->Map(arenas_[from]->share(), std::move(fds), /*ours=*/false);
    FERRY_CHECK(view.ok());
    return *std::move(view);
  }
  auto view = HostMapping::Map(std::move(fd), arena_bytes(), HostMapping::Access::kReadOnly);
  FERRY_CHECK(view.ok());
  return *std::move(view);
}

std::unique_ptr<Copier> Rig::MakeCopier(int end, CopyHelper& helper) {
  if (gpus_[end] != nullptr) return gpus_[end]->MakeCopier(CopyUse::kTransfers);
  return std::make_unique<HostCopier>(helper);
}

std::unique_ptr<Rig> Rig::Make(const std::string& kind, uint64_t arena_bytes) {
  if (kind == "local") return std::make_unique<CopyRig>(false, arena_bytes);
  if (kind == "mapped") return std::make_unique<CopyRig>(true, arena_bytes);
  if (kind == "local_gpu") return std::make_unique<CopyRig>(false, arena_bytes, true);
  if (kind == "relay") return std::make_unique<RelayRig>(arena_bytes);
  if (kind == "nccl") return std::make_unique<NcclRig>(arena_bytes);
  if (kind == "mapped_gpu") return std::make_unique<CopyRig>(true, arena_bytes, true);
  const bool to_host = absl::EndsWith(kind, "_gpu_to_host");
  const bool gpu = absl::EndsWith(kind, "_gpu");
  const Gpus gpus = {gpu || to_host, gpu};
  if (absl::StartsWith(kind, "tcp")) return std::make_unique<TcpRig>(arena_bytes, gpus);
  const std::string transport = absl::StrContains(kind, "shm") ? "shm" : "net";
  return std::make_unique<UcxRig>(transport, arena_bytes, gpus);
}

void Rig::Launch(int from, const std::vector<Move>& moves) {
  LaunchHalf(1 - from, from, moves);
  if (two_sided()) LaunchHalf(from, from, moves);
}

void Rig::LaunchHalf(int end, int from, const std::vector<Move>& moves) {
  lane(end).RunAndWait([&] { LaunchOnLane(end, from, moves); });
}

void Rig::LaunchOnLane(int end, int from, const std::vector<Move>& moves) {
  const bool receive = end != from;
  const std::byte* const view = RemoteView(from);
  std::vector<TransportOp> ops;
  for (const Move& move : moves) {
    TransportOp op;
    op.transfer = TransferId(move.id);
    op.attempt = 1;
    op.priority = move.priority;
    op.role =
        !two_sided() ? LaunchRole::kCopy : (receive ? LaunchRole::kReceive : LaunchRole::kSend);
    op.peer = PeerId(static_cast<uint32_t>(1 - end));
    op.remote_device = GlobalDeviceId(static_cast<uint64_t>(1 - end));
    op.tag = move.id;
    absl::InlinedVector<const std::byte*, 1> read;
    absl::InlinedVector<std::byte*, 1> own;
    const Layout& layout = (receive ? move.destination : move.source).layout;
    for (const Range& extent : layout.extents()) own.push_back(arena(end) + extent.offset);
    if (two_sided()) {
      op.layout = layout;
      op.extents = std::move(own);
      op.MakeSegments();
    } else {
      for (const Range& extent : move.source.layout.extents()) {
        read.push_back(view + extent.offset);
      }
      op.copy.emplace(move.source.layout, std::move(read), layout, std::move(own));
    }
    ops.push_back(std::move(op));
  }
  answers_[end].BeginCall();
  transport(end).Launch(std::move(ops));
  answers_[end].EndCall();
}

void Rig::Abort(int end, uint64_t id, const absl::Status& why) {
  lane(end).RunAndWait([&] {
    answers_[end].BeginCall();
    transport(end).Abort(TransferId(id), 1, why);
    answers_[end].EndCall();
  });
}

absl::Status Rig::Await(int from, uint64_t id) {
  absl::Status status = answers_[1 - from].Await(TransferId(id));
  if (two_sided()) {
    const absl::Status sent = answers_[from].Await(TransferId(id));
    if (status.ok()) status = sent;
  }
  return status;
}

void Rig::ExpectAnswered(int end, size_t count) {
  answers_[end].AwaitCount(count);
  lane(end).RunAndWait([] {});
  EXPECT_EQ(answers_[end].count(), count);
}

CopyRig::CopyRig(bool mapped, uint64_t arena_bytes, bool gpu) : Rig(arena_bytes, {gpu, gpu}) {
  if (mapped) {
    for (int end : {0, 1}) views_[end] = View(end);
    auto made = LinkPage::Create();
    FERRY_CHECK(made.ok());
    pages_[0] = *std::move(made);
    auto taken = LinkPage::Map(UniqueFd(dup(pages_[0]->memfd())));
    FERRY_CHECK(taken.ok());
    pages_[1] = *std::move(taken);
  }
  for (int end : {0, 1}) {
    transports_[end] = std::make_unique<CopyTransport>(
        lane(end), MakeCopier(end, helper_), answers_[end].Sink(), [this, end](PeerId) {
          if (pages_[end] == nullptr || !pages_[end]->Revoked()) return absl::OkStatus();
          return Error(absl::StatusCode::kAborted, Reason::kPeerUnreachable, "the link was lost");
        });
  }
}

CopyRig::~CopyRig() = default;

RelayRig::RelayRig(uint64_t arena_bytes) : Rig(arena_bytes) {
  for (int end : {0, 1}) {
    transports_[end] =
        std::make_unique<RelayTransport>(relay_, end, lane(end), answers_[end].Sink());
  }
}

RelayRig::~RelayRig() = default;

UcxOptions OnlyKind(const std::string& kind) {
  UcxOptions options;
  options.shm_tls = kind == "shm" ? "posix,sysv,cma,self" : "";
  options.net_tls = kind == "net" ? "tcp,self" : "";
  return options;
}

UcxRig::UcxRig(const std::string& kind, uint64_t arena_bytes, Gpus gpus) : Rig(arena_bytes, gpus) {
  const auto api = LoadUcx();
  FERRY_CHECK(api.ok());
  for (int end : {0, 1}) {
    auto transport = UcxTransport::Create(**api, OnlyKind(kind), lane(end), answers_[end].Sink(),
                                          staging_[end].get());
    FERRY_CHECK(transport.ok());
    transports_[end] = *std::move(transport);
  }
  Connect();
}

void UcxRig::ConnectOnLane(int end) {
  const GlobalDeviceId own(static_cast<uint64_t>(end)), other(static_cast<uint64_t>(1 - end));
  const UcxAddressBlob theirs =
      transports_[1 - end]->addresses(PeerId(static_cast<uint32_t>(end)))[0];
  const auto closings = theirs.closings.find(own);
  transports_[end]->AddPeer(PeerId(static_cast<uint32_t>(1 - end)), other, theirs,
                            closings == theirs.closings.end() ? 0 : closings->second);
}

void UcxRig::Connect() {
  for (int end : {0, 1}) {
    // A moment after a lost link there may be none.
    while (transports_[1 - end]->addresses(PeerId(0)).empty()) lane(1 - end).RunAndWait([] {});
    lane(end).RunAndWait([&] { ConnectOnLane(end); });
  }
}

void UcxRig::DisconnectOnLane(int end) {
  transports_[end]->RemovePeer(
      PeerId(static_cast<uint32_t>(1 - end)),
      Error(absl::StatusCode::kAborted, Reason::kPeerUnreachable, "the link was lost"));
}

void UcxRig::Disconnect(int end) {
  lane(end).RunAndWait([&] { DisconnectOnLane(end); });
}

UcxRig::~UcxRig() {
  for (auto& transport : transports_) transport.reset();
}

}  // namespace ferry
