// SPDX-License-Identifier: Apache-2.0
// A session on its own, with quotas of the test's, arenas without memory, and batches as convert
// makes them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/session/session.h"
#include "tests/daemon/support.h"

namespace ferry::testing {

inline constexpr absl::Time kNow = absl::FromUnixSeconds(3'600'000);

class SessionRig {
 public:
  explicit SessionRig(Session::Limits limits = {{/*bytes=*/1000, /*arenas=*/3,
                                                 /*transfers_in_flight=*/10,
                                                 /*batch_transfers=*/4096},
                                                absl::Seconds(60)})
      : session(SessionId(5), "trainer", std::string(32, 't'), {100, 1000, 1000}, MakePages(),
                std::move(limits), of_uid, kNow) {}

  // Adds an arena as the session table does.
  Arena& AddArena(uint64_t id, uint64_t bytes, uint64_t device = 1) {
    EXPECT_THAT(session.arenas().Reserve(bytes), Is("OK"));
    auto arena = std::make_unique<Arena>();
    arena->id = ArenaId(id);
    arena->session = session.id();
    arena->device = GlobalDeviceId(device);
    arena->bytes = arena->held = bytes;
    return session.arenas().Add(std::move(arena));
  }

  // A batch for device 1 with one transfer for each layout.
  static PostBatch Batch(std::vector<Layout> transfers) {
    PostBatch batch;
    batch.device = GlobalDeviceId(1);
    for (Layout& layout : transfers) {
      TransferSpec spec;
      spec.layout = std::move(layout);
      spec.bytes = spec.layout.bytes();
      batch.specs.push_back(std::move(spec));
      batch.deadlines.push_back(absl::ZeroDuration());
    }
    return batch;
  }
  // A batch of `count` transfers without bytes.
  static PostBatch Empty(size_t count) { return Batch(std::vector<Layout>(count)); }

  PostReply Post(PostBatch& batch) {
    EXPECT_THAT(session.CheckAndComplete(batch, kNow), ::testing::IsEmpty());
    return session.Admit(batch);
  }

  // Transfer `i` of an admitted batch ends.
  void End(const PostBatch& batch, const PostReply& reply, size_t i,
           absl::Status status = absl::OkStatus(), Route route = Route::kLocal) {
    Ended ended;
    ended.transfer = MakeTransferId(session.id(), reply.first_transfer_id + i);
    ended.over_timeline = batch.over_timeline;
    ended.over_value = batch.specs[i].over_value;
    ended.status = std::move(status);
    ended.route = route;
    ended.layout = batch.specs[i].layout;
    ended.record_bytes = batch.specs[i].record_bytes;
    session.OnEnded(ended);
  }

  ferry_timeline_pages& pages() {
    return *static_cast<ferry_timeline_pages*>(const_cast<void*>(session.timelines().begin()));
  }

  RecordBytes of_uid{uint64_t{1} << 30};
  Session session;

 private:
  static std::unique_ptr<TimelinePages> MakePages() {
    absl::StatusOr<std::unique_ptr<TimelinePages>> pages = TimelinePages::Create();
    EXPECT_TRUE(pages.ok());
    return *std::move(pages);
  }
};

}  // namespace ferry::testing
