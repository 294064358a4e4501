// SPDX-License-Identifier: Apache-2.0
// Two ends, each with a lane, an arena and a transport, so that one suite of rules runs over every
// transport. Both ends live in this process; peers that can be killed are in peer_process.h.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "device/cuda/cuda_device.h"
#include "device/host/copy.h"
#include "device/host/host_memory.h"
#include "device/lane.h"
#include "tests/contract/relay_transport.h"
#include "transfer/layout.h"
#include "transfer/local/copy_transport.h"
#include "transfer/mapped/link_page.h"
#include "transfer/ucx/ucx_transport.h"

namespace ferry {

// The answers that came through one end's sink. Fails the test if an answer comes twice or inline.
class Answers {
 public:
  OpSink Sink();
  // Between BeginCall and EndCall the sink must not be called. To be called on the lane.
  void BeginCall() { in_call_ = true; }
  void EndCall() { in_call_ = false; }
  absl::Status Await(TransferId transfer);
  void AwaitCount(size_t count);
  size_t count();
  std::vector<TransferId> order();  // in the order in which they came

 private:
  Mutex mutex_;
  std::condition_variable_any came_;
  std::map<TransferId, absl::Status> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<TransferId> order_ ABSL_GUARDED_BY(mutex_);
  bool in_call_ = false;  // touched on the lane only
};

// Bytes of an end's arena: ranges as (offset, length), or any layout.
struct Bytes {
  Bytes(std::initializer_list<std::pair<uint64_t, uint64_t>> ranges);
  Bytes(Layout layout) : layout(std::move(layout)) {}
  Layout layout;
};

// Bytes of end `from` that go to as many bytes of the other end.
struct Move {
  uint64_t id = 0;
  Bytes source;
  Bytes destination;
  int32_t priority = 0;
};

class Rig {
 public:
  static std::unique_ptr<Rig> Make(const std::string& kind, uint64_t arena_bytes);
  virtual ~Rig() = default;

  Lane& lane(int end) { return *lanes_[end]; }
  std::byte* arena(int end) { return arenas_[end]->data(); }
  uint64_t arena_bytes() const { return arenas_[0]->bytes(); }
  // Whether both ends answer. One-sided transports answer at the destination only.
  virtual bool two_sided() const = 0;
  virtual Transport& transport(int end) = 0;
  // Destroys the end's transport, which then answers everything that is in flight.
  virtual void TakeDown(int end) = 0;

  // Launches both halves; LaunchHalf launches one of them.
  void Launch(int from, const std::vector<Move>& moves);
  void LaunchHalf(int end, int from, const std::vector<Move>& moves);
  // As LaunchHalf, but called on the lane of `end`.
  void LaunchOnLane(int end, int from, const std::vector<Move>& moves);
  void Abort(int end, uint64_t id, const absl::Status& why);
  // Waits for both halves. OK, or the first error of them.
  absl::Status Await(int from, uint64_t id);
  Answers& answers(int end) { return answers_[end]; }
  // Expects that the end has answered `count` times, each transfer once, and nothing is in flight.
  void ExpectAnswered(int end, size_t count);

 protected:
  // `gpu[end]`: the end is a GPU of the fake CUDA, not a host device.
  using Gpus = std::array<bool, 2>;
  explicit Rig(uint64_t arena_bytes, Gpus gpus = {});
  // Maps the arena of end `from` a second time, as another daemon would.
  std::unique_ptr<DeviceMemory> View(int from);
  std::unique_ptr<Copier> MakeCopier(int end, CopyHelper& helper);
  // The address at which the other end reads the arena of end `from`.
  virtual const std::byte* RemoteView(int from) { return arena(from); }

  std::unique_ptr<CudaDevice> gpus_[2];  // null: host devices
  std::unique_ptr<Lane> lanes_[2];
  std::unique_ptr<GpuStaging> staging_[2];  // null for host devices
  std::unique_ptr<DeviceMemory> arenas_[2];
  Answers answers_[2];
};

class CopyRig : public Rig {
 public:
  CopyRig(bool mapped, uint64_t arena_bytes, bool gpu = false);
  ~CopyRig() override;
  bool two_sided() const override { return false; }
  Transport& transport(int end) override { return *transports_[end]; }
  LinkPage& page(int end) { return *pages_[end]; }
  void TakeDown(int end) override { transports_[end].reset(); }

 protected:
  const std::byte* RemoteView(int from) override {
    return views_[from] == nullptr ? arena(from) : views_[from]->data();
  }

 private:
  CopyHelper helper_;
  std::unique_ptr<DeviceMemory> views_[2];
  std::unique_ptr<LinkPage> pages_[2];
  std::unique_ptr<CopyTransport> transports_[2];
};

// UcxOptions with which a worker has one kind of transports only: "net" (TCP) or "shm".
UcxOptions OnlyKind(const std::string& kind);

class UcxRig : public Rig {
 public:
  UcxRig(const std::string& kind, uint64_t arena_bytes, Gpus gpus = {});
  ~UcxRig() override;
  bool two_sided() const override { return true; }
  Transport& transport(int end) override { return *transports_[end]; }
  UcxTransport& ucx(int end) { return *transports_[end]; }
  void Connect();
  void Disconnect(int end);
  // Connect and Disconnect for one end, called on its lane.
  void ConnectOnLane(int end);
  void DisconnectOnLane(int end);
  void TakeDown(int end) override { transports_[end].reset(); }

 private:
  std::unique_ptr<UcxTransport> transports_[2];
};

// Of the route that is an example.
class RelayRig : public Rig {
 public:
  explicit RelayRig(uint64_t arena_bytes);
  ~RelayRig() override;
  bool two_sided() const override { return true; }
  Transport& transport(int end) override { return *transports_[end]; }
  void TakeDown(int end) override { transports_[end].reset(); }

 private:
  RelayTransport::Relay relay_;
  std::unique_ptr<RelayTransport> transports_[2];
};

// Staging for a GPU's lane; `gpu` must have none yet.
std::unique_ptr<GpuStaging> StagingOf(Lane& lane, CudaDevice& gpu);

UniqueFd MakeArena(uint64_t bytes);
void FillRandom(std::byte* bytes, uint64_t size, uint64_t seed);

}  // namespace ferry
