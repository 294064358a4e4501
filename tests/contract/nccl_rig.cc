// SPDX-License-Identifier: Apache-2.0
#include "tests/contract/nccl_rig.h"

#include <stdlib.h>

#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/status.h"

namespace ferry {
namespace {

constexpr uint64_t kChunk = uint64_t{8} << 20;
constexpr uint64_t kGroup = uint64_t{64} << 20;

}  // namespace

NcclRig::NcclRig(uint64_t arena_bytes) : Rig(arena_bytes, {true, true}) {
  setenv("FERRY_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);  // the fake NCCL's driver
  const auto api = LoadNccl(FAKE_NCCL_LIBRARY, {});
  FERRY_CHECK(api.ok());
  for (int end : {0, 1}) {
    halves_[end].rig = this;
    halves_[end].end = end;
    sinks_[end] = answers_[end].Sink();
    communicators_[end] = std::make_unique<Communicator>(**api, *gpus_[end], end, 16);
    transports_[end] = std::make_unique<NcclTransport>(
        lane(end), NcclTransport::Hooks{
                       [this, end](const std::vector<std::pair<uint64_t, absl::Status>>& over) {
                         OnOver(end, over);
                       },
                       [](Communicator*, absl::Status why) { ADD_FAILURE() << why; }});
    auto stream = CudaStream::Make(*gpus_[end], NcclTransport::kStream);
    FERRY_CHECK(stream.ok());
    lane(end).RunAndWait([&] { transports_[end]->SetStream(*std::move(stream)); });
  }
  const auto id = communicators_[0]->MakeId();
  FERRY_CHECK(id.ok());
  std::thread other([&] { FERRY_CHECK(communicators_[1]->Open(*id).ok()); });
  FERRY_CHECK(communicators_[0]->Open(*id).ok());
  other.join();
}

NcclRig::~NcclRig() {
  for (auto& communicator : communicators_) {
    communicator->End();
    communicator->Reap();
  }
  for (auto& transport : transports_) transport.reset();
}

void NcclRig::Halves::Launch(std::vector<TransportOp> ops) { rig->Add(end, std::move(ops)); }

void NcclRig::Add(int end, std::vector<TransportOp> ops) {
  MutexLock lock(mutex_);
  for (const TransportOp& op : ops) {
    std::vector<Range> ranges;
    for (const Segment& segment : op.segments) {
      ranges.push_back(
          {ArenaId(1), static_cast<uint64_t>(segment.local - arena(end)), segment.size});
    }
    pairs_[end][op.transfer] = {op.role == LaunchRole::kSend, Layout(std::move(ranges))};
  }
  LaunchPairs();
}

void NcclRig::LaunchPairs() {
  std::vector<GroupPart> parts[2];
  Group group;
  uint64_t bytes = 0;
  const auto launch = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (group.empty()) return;
    const uint64_t number = groups_.size();
    groups_.push_back(std::move(group));
    for (int end : {0, 1}) {
      auto op = std::make_unique<GroupOp>();
      op->group = number;
      op->communicator = communicators_[end].get();
      op->parts = std::move(parts[end]);
      lane(end).Post([transport = transports_[end].get(), op = std::move(op)] {
        transport->LaunchGroup(std::move(*op));
      });
      parts[end].clear();
    }
    group.clear();
    bytes = 0;
  };
  for (auto& [id, low] : pairs_[0]) {
    const auto high = pairs_[1].find(id);
    if (low.launched || high == pairs_[1].end()) continue;
    low.launched = high->second.launched = true;
    uint64_t at = 0;
    do {
      const uint64_t chunk = std::min(kChunk, low.layout.bytes() - at);
      if (bytes + chunk > kGroup || group.size() == kMaxGroupChunks) launch();
      for (int end : {0, 1}) {
        Half& half = end == 0 ? low : high->second;
        GroupPart part{half.send, chunk, LayoutCursor(half.layout), {}};
        part.cursor.Seek(at);
        for (const Range& extent : half.layout.extents()) {
          part.extents.push_back(arena(end) + extent.offset);
        }
        parts[end].push_back(std::move(part));
        ++half.chunks;
      }
      group.push_back(id);
      bytes += chunk;
      at += chunk;
    } while (at < low.layout.bytes());
  }
  launch();
}

void NcclRig::OnOver(int end, const std::vector<std::pair<uint64_t, absl::Status>>& over) {
  std::vector<OpResult> results;
  {
    MutexLock lock(mutex_);
    for (const auto& [group, status] : over) {
      for (const TransferId id : groups_[group]) {
        Half& half = pairs_[end].at(id);
        half.status.Update(status);
        if (--half.chunks == 0) results.push_back({id, 1, half.status});
      }
    }
  }
  if (!results.empty()) sinks_[end](std::move(results));
}

}  // namespace ferry
