// SPDX-License-Identifier: Apache-2.0
// Two GPUs of the fake CUDA, each with a lane and a transport, and communicators of the fake NCCL
// between them, in one process. The test does what a daemon's control would.
#pragma once

#include <fake_cuda.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"
#include "base/status.h"
#include "transfer/nccl/communicator.h"
#include "transfer/nccl/nccl_transport.h"

namespace ferry {

class TwoRanks {
 public:
  // The answers of one end: of groups by their number, of armed transfers, and of communicators
  // that failed.
  class Answers {
   public:
    NcclTransport::Hooks Hooks() {
      return {[this](std::vector<std::pair<uint64_t, absl::Status>> over) {
                MutexLock lock(mutex_);
                for (auto& [group, status] : over) {
                  EXPECT_TRUE(over_.emplace(group, std::move(status)).second) << group;
                }
                came_.notify_all();
              },
              [this](Communicator*, absl::Status why) {
                MutexLock lock(mutex_);
                failed_.push_back(std::move(why));
                came_.notify_all();
              },
              [this](const Communicator*) {
                MutexLock lock(mutex_);
                ++let_go_;
              },
              [this](std::vector<OpResult> results) {
                MutexLock lock(mutex_);
                for (OpResult& result : results) {
                  EXPECT_TRUE(armed_.emplace(result.transfer, std::move(result.status)).second);
                }
                came_.notify_all();
              },
              [this](uint64_t bundle) {
                MutexLock lock(mutex_);
                ++wanted_[bundle];
                came_.notify_all();
              }};
    }
    // Waits until this many firings of a bundle were wanted.
    void AwaitWanted(uint64_t bundle, uint64_t firings) {
      MutexLock lock(mutex_);
      while (wanted_[bundle] < firings) came_.wait(mutex_);
      EXPECT_EQ(wanted_[bundle], firings);
    }
    absl::Status AwaitArmed(TransferId transfer) {
      MutexLock lock(mutex_);
      while (!armed_.contains(transfer)) came_.wait(mutex_);
      return armed_[transfer];
    }
    absl::Status Await(uint64_t group) {
      MutexLock lock(mutex_);
      while (!over_.contains(group)) came_.wait(mutex_);
      return over_[group];
    }
    absl::Status AwaitFailure() {
      MutexLock lock(mutex_);
      while (failed_.empty()) came_.wait(mutex_);
      return failed_.front();
    }
    // How many armed transfers were answered.
    size_t armed() {
      MutexLock lock(mutex_);
      return armed_.size();
    }
    // How many ends of communicators were answered.
    size_t let_go() {
      MutexLock lock(mutex_);
      return let_go_;
    }
    size_t count() {
      MutexLock lock(mutex_);
      return over_.size();
    }

   private:
    Mutex mutex_;
    std::condition_variable_any came_;
    size_t let_go_ ABSL_GUARDED_BY(mutex_) = 0;
    std::map<uint64_t, absl::Status> over_ ABSL_GUARDED_BY(mutex_);
    std::vector<absl::Status> failed_ ABSL_GUARDED_BY(mutex_);
    std::map<TransferId, absl::Status> armed_ ABSL_GUARDED_BY(mutex_);
    std::map<uint64_t, uint64_t> wanted_ ABSL_GUARDED_BY(mutex_);
  };

  explicit TwoRanks(uint64_t arena_bytes, const char* library = FAKE_NCCL_LIBRARY)
      : api_(**LoadNccl(library, {})) {
    auto found = FindGpus(FAKE_CUDA_LIBRARY);
    FERRY_CHECK(found.ok() && found->size() == 2);
    for (int end : {0, 1}) {
      gpus_[end] = std::make_unique<CudaDevice>(FAKE_CUDA_LIBRARY, (*found)[end],
                                                std::vector<int>{(*found)[end].ordinal});
      auto arena = gpus_[end]->Map({MemoryKind::kCudaAllocate, arena_bytes}, {});
      FERRY_CHECK(arena.ok());
      arenas_[end] = *std::move(arena);
      lanes_[end] = std::make_unique<Lane>(end == 0 ? "lane-0" : "lane-1", Lane::DefaultSpin());
      transports_[end] = std::make_unique<NcclTransport>(*lanes_[end], answers_[end].Hooks());
      auto stream = CudaStream::Make(*gpus_[end], NcclTransport::kStream);
      FERRY_CHECK(stream.ok());
      lanes_[end]->RunAndWait([&] { transports_[end]->SetStream(*std::move(stream)); });
    }
  }
  ~TwoRanks() {
    for (int end : {0, 1}) {
      transports_[end].reset();
      lanes_[end].reset();
      communicators_[end].reset();
      arenas_[end].reset();
    }
  }

  Communicator& Make(int end, int max_ctas = 16) {
    communicators_[end] = std::make_unique<Communicator>(api_, *gpus_[end], end, max_ctas);
    return *communicators_[end];
  }
  // Opens both ends at once. Returns their statuses.
  std::pair<absl::Status, absl::Status> Open() {
    for (int end : {0, 1}) Make(end);
    const absl::StatusOr<std::string> id = communicators_[0]->MakeId();
    FERRY_CHECK(id.ok());
    absl::Status other;
    std::thread opener([&] { other = communicators_[1]->Open(*id).status(); });
    const absl::Status own = communicators_[0]->Open(*id).status();
    opener.join();
    return {own, other};
  }
  void DestroyTransport(int end) { transports_[end].reset(); }
  // Ends a communicator as control does.
  void Reap(int end, const absl::Status& why) {
    End(end, why);
    communicators_[end]->Reap();
  }
  void End(int end, const absl::Status& why) {
    communicators_[end]->End();
    if (transports_[end] == nullptr) return;
    lanes_[end]->RunAndWait([&] { transports_[end]->Ended(communicators_[end].get(), why); });
  }

  GroupPart Part(int end, bool send, const Layout& layout, uint64_t offset = 0,
                 uint64_t bytes = ~uint64_t{0}) {
    GroupPart part{send, std::min(bytes, layout.bytes() - offset), LayoutCursor(layout), {}};
    part.cursor.Seek(offset);
    for (const Range& extent : layout.extents()) {
      part.extents.push_back(arenas_[end]->data() + extent.offset);
    }
    return part;
  }
  void Launch(int end, uint64_t group, std::vector<GroupPart> parts) {
    lanes_[end]->RunAndWait([&] {
      transports_[end]->LaunchGroup({group, communicators_[end].get(), std::move(parts)});
    });
  }

  // Launches a group of one firing.
  void LaunchFiring(int end, uint64_t group, GroupOp::Firing firing) {
    LaunchFirings(end, group, {firing});
  }
  void LaunchFirings(int end, uint64_t group, std::vector<GroupOp::Firing> firings) {
    lanes_[end]->RunAndWait([&] {
      transports_[end]->LaunchGroup({group, communicators_[end].get(), {}, std::move(firings)});
    });
  }
  void GatherAhead(int end, uint64_t group, std::vector<GroupOp::Firing> firings) {
    lanes_[end]->RunAndWait([&] {
      transports_[end]->GatherAhead({group, communicators_[end].get(), {}, std::move(firings)});
    });
  }
  // A prepared transfer of a bundle at one end.
  TransportOp Half(int end, bool send, TransferId transfer, uint64_t bundle, uint64_t place,
                   PreparedBatch& own, const Layout& layout) {
    TransportOp op;
    op.transfer = transfer;
    op.attempt = 1;
    op.role = send ? LaunchRole::kSend : LaunchRole::kReceive;
    op.layout = layout;
    for (const Range& extent : layout.extents()) {
      op.extents.push_back(arenas_[end]->data() + extent.offset);
    }
    op.prepared = PreparedEnds{.own = &own, .bundle = bundle, .place = place};
    return op;
  }
  void Arm(int end, std::vector<TransportOp> halves) {
    lanes_[end]->RunAndWait([&] { transports_[end]->Launch(std::move(halves)); });
  }
  void Abort(int end, TransferId transfer, const absl::Status& why) {
    lanes_[end]->RunAndWait([&] { transports_[end]->Abort(transfer, 1, why); });
  }

  const NcclApi& api() const { return api_; }
  CudaDevice& gpu(int end) { return *gpus_[end]; }
  std::byte* arena(int end) { return arenas_[end]->data(); }
  Lane& lane(int end) { return *lanes_[end]; }
  Communicator& communicator(int end) { return *communicators_[end]; }
  Answers& answers(int end) { return answers_[end]; }

 private:
  const NcclApi& api_;
  Answers answers_[2];
  std::unique_ptr<CudaDevice> gpus_[2];
  std::unique_ptr<DeviceMemory> arenas_[2];
  std::unique_ptr<Communicator> communicators_[2];
  std::unique_ptr<Lane> lanes_[2];
  std::unique_ptr<NcclTransport> transports_[2];
};

}  // namespace ferry
