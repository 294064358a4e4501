// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/bench_end.h"

#include <time.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>

#include "base/status.h"
#include "tools/ferryctl/failure.h"

namespace ferry::tools {
namespace {

constexpr uint64_t kMostPerCall = 1024;
// A batch that is prepared once and fired often is as large as possible.
constexpr uint64_t kMostPrepared = 4096;
constexpr uint32_t kTimeline = 0;
constexpr uint32_t kParkedTimeline =
    1;  // else every later transfer would wait behind the parked ones
// Bytes that are read from or written to an arena at once
constexpr uint64_t kPortion = uint64_t{4} << 20;

std::vector<uint64_t> Shuffled(uint64_t key, uint64_t count) {
  std::vector<uint64_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  std::shuffle(indices.begin(), indices.end(), std::mt19937_64(key));
  return indices;
}

// Slots are scattered, in the same way at both ends: neighbours would be copied as one.
uint64_t StrideOf(uint64_t slots) {
  uint64_t stride = 7919;
  while (std::gcd(stride, slots) != 1) ++stride;
  return stride;
}

}  // namespace

int64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string NumberKey(uint64_t key) {
  std::string text(8, '\0');
  for (int i = 0; i < 8; ++i) text[i] = static_cast<char>(key >> (8 * (7 - i)));
  return text;
}

absl::StatusOr<BenchEnd> BenchEnd::Open(const SessionOptions& options, PostTarget target,
                                        int64_t own_device) {
  BenchEnd end;
  ASSIGN_OR_RETURN(end.session_, OpenSession(options));
  end.target_ = std::move(target);
  ASSIGN_OR_RETURN(end.target_.device, OwnDevice(end.session_.get(), own_device));
  return end;
}

absl::Status BenchEnd::MakeArena(uint64_t bytes, unsigned flags) {
  prepared_.clear();  // the prepared batches use the arena
  for (PreparedPtr& ping : ping_) ping.reset();
  arena_.reset();
  ForgetMoved();
  ASSIGN_OR_RETURN(
      arena_, CreateArena(session_.get(), target_.device, std::max<uint64_t>(bytes, 1), flags));
  return absl::OkStatus();
}

uint64_t BenchEnd::Slots(uint64_t bytes) const {
  return bytes == 0 ? 1 : ferry_arena_bytes(arena_.get()) / bytes;
}

void BenchEnd::MovedSlots(uint64_t bytes, uint64_t end) {
  uint64_t& slots = moved_slots_[bytes];
  slots = std::max(slots, std::min(end, Slots(bytes)));
  moved_ = true;
}

void BenchEnd::MovedBlocks(uint64_t bytes) {
  moved_blocks_ = std::max(moved_blocks_, bytes);
  moved_ = true;
}

void BenchEnd::MovedPing() {
  moved_ping_ = ping_bytes_;
  moved_ = true;
}

void BenchEnd::ForgetMoved() {
  moved_slots_.clear();
  moved_blocks_ = moved_ping_ = 0;
  moved_ = false;
}

void BenchEnd::FillTransfers(uint64_t key, uint64_t count, uint64_t bytes, uint64_t first_slot) {
  const uint64_t slots = Slots(bytes);
  const uint64_t stride = StrideOf(slots);
  transfers_.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    transfers_[i].key = NumberKey(key + i);
    transfers_[i].offset = OffsetOf(first_slot + i, slots, stride, bytes);
    transfers_[i].bytes = bytes;
  }
}

absl::StatusOr<BatchPtr> BenchEnd::PostOne(uint64_t key, uint64_t count, uint64_t bytes,
                                           uint64_t first_slot, uint32_t timeline) {
  FillTransfers(key, count, bytes, first_slot);
  target_.over_timeline = timeline;
  ASSIGN_OR_RETURN(BatchPtr batch, Post(session_.get(), target_, arena_.get(), transfers_));
  last_ = ferry_batch_first_id(batch.get()) + count - 1;
  return batch;
}

absl::Status BenchEnd::PostMany(uint64_t key, uint64_t count, uint64_t bytes) {
  MovedSlots(bytes, count);
  for (uint64_t at = 0; at < count; at += kMostPerCall) {
    const uint64_t now = std::min(kMostPerCall, count - at);
    ASSIGN_OR_RETURN(BatchPtr batch, PostOne(key + at, now, bytes, at, kTimeline));
    posted_.push_back(std::move(batch));
  }
  return absl::OkStatus();
}

absl::Status BenchEnd::PostBlocks(uint64_t key, uint64_t count, uint64_t bytes) {
  MovedBlocks(count * bytes);
  const std::vector<uint64_t> indices = Shuffled(key, count);
  const ferry_block_table table{arena_.get(), 0, bytes, indices.data(), indices.size()};
  target_.over_timeline = kTimeline;
  ASSIGN_OR_RETURN(BatchPtr batch,
                   tools::PostBlocks(session_.get(), target_, NumberKey(key), table));
  last_ = ferry_batch_first_id(batch.get());
  posted_.push_back(std::move(batch));
  return absl::OkStatus();
}

absl::Status BenchEnd::Prepare(uint64_t key, uint64_t count, uint64_t bytes) {
  prepared_.clear();
  prepared_bytes_ = bytes;
  prepared_count_ = count;
  prepared_blocks_ = false;
  for (uint64_t at = 0; at < count; at += kMostPrepared) {
    FillTransfers(key + at, std::min(kMostPrepared, count - at), bytes, at);
    ASSIGN_OR_RETURN(PreparedPtr prepared,
                     tools::Prepare(session_.get(), target_, arena_.get(), transfers_));
    last_ = ferry_prepared_first_id(prepared.get());
    prepared_.push_back(std::move(prepared));
  }
  return absl::OkStatus();
}

absl::Status BenchEnd::PrepareBlocks(uint64_t key, uint64_t count, uint64_t bytes) {
  prepared_.clear();
  prepared_bytes_ = bytes;
  prepared_count_ = count;
  prepared_blocks_ = true;
  const std::vector<uint64_t> indices = Shuffled(key, count);
  const ferry_block_table table{arena_.get(), 0, bytes, indices.data(), indices.size()};
  ASSIGN_OR_RETURN(PreparedPtr prepared,
                   tools::PrepareBlocks(session_.get(), target_, NumberKey(key), table));
  last_ = ferry_prepared_first_id(prepared.get());
  prepared_.push_back(std::move(prepared));
  return absl::OkStatus();
}

absl::Status BenchEnd::Fire() {
  if (prepared_blocks_) {
    MovedBlocks(prepared_count_ * prepared_bytes_);
  } else {
    MovedSlots(prepared_bytes_, prepared_count_);
  }
  for (const PreparedPtr& prepared : prepared_) {
    RETURN_IF_ERROR(FromFerry(ferry_prepared_fire(prepared.get(), nullptr)));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BenchEnd::FireMany(uint64_t times) {
  for (uint64_t i = 0; i < times; ++i) {
    RETURN_IF_ERROR(Fire());
    RETURN_IF_ERROR(Await().status());
  }
  return MonotonicNanoseconds();
}

absl::Status BenchEnd::PreparePing(uint64_t key, uint64_t bytes) {
  ping_bytes_ = bytes;
  // The key of a transfer belongs to its direction, so the two ends name them crosswise.
  const bool first = target_.end == End::kSend;
  for (const End end : {End::kSend, End::kReceive}) {
    PostTarget target = target_;
    target.end = end;
    const bool there = (end == End::kSend) == first;
    const RangeTransfer transfer{NumberKey(key + (there ? 0 : 1)), end == End::kSend ? 0 : bytes,
                                 bytes};
    ASSIGN_OR_RETURN(ping_[end == End::kSend ? 0 : 1],
                     tools::Prepare(session_.get(), target, arena_.get(), {transfer}));
  }
  last_ = ferry_prepared_first_id(ping_[0].get());
  return absl::OkStatus();
}

absl::Status BenchEnd::Wait(ferry_prepared* prepared, uint64_t firing) const {
  return FromFerry(ferry_prepared_wait(prepared, firing, ToFerry(patience_)));
}

absl::StatusOr<std::vector<absl::Duration>> BenchEnd::Ping(uint64_t times) {
  std::vector<absl::Duration> took;
  took.reserve(times);
  MovedPing();
  ferry_prepared* const send = ping_[0].get();
  ferry_prepared* const receive = ping_[1].get();
  for (uint64_t i = 0; i < times; ++i) {
    uint64_t firing = 0;
    RETURN_IF_ERROR(FromFerry(ferry_prepared_fire(receive, &firing)));
    const int64_t start = MonotonicNanoseconds();
    RETURN_IF_ERROR(FromFerry(ferry_prepared_fire(send, nullptr)));
    RETURN_IF_ERROR(Wait(receive, firing));
    took.push_back(absl::Nanoseconds(MonotonicNanoseconds() - start));
    RETURN_IF_ERROR(Wait(send, firing));
  }
  return took;
}

absl::Status BenchEnd::Pong(uint64_t times) {
  MovedPing();
  ferry_prepared* const send = ping_[0].get();
  ferry_prepared* const receive = ping_[1].get();
  for (uint64_t i = 0; i < times; ++i) {
    uint64_t firing = 0;
    RETURN_IF_ERROR(FromFerry(ferry_prepared_fire(receive, &firing)));
    RETURN_IF_ERROR(Wait(receive, firing));
    RETURN_IF_ERROR(FromFerry(ferry_prepared_fire(send, nullptr)));
    RETURN_IF_ERROR(Wait(send, firing));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> BenchEnd::Await() {
  std::vector<BatchPtr> batches = std::move(posted_);
  posted_.clear();
  for (const BatchPtr& batch : batches) RETURN_IF_ERROR(Wait(batch));
  for (const PreparedPtr& prepared : prepared_) {
    RETURN_IF_ERROR(Wait(prepared.get(), ferry_prepared_fired(prepared.get())));
  }
  return MonotonicNanoseconds();
}

absl::StatusOr<int64_t> BenchEnd::Stream(uint64_t key, uint64_t count, uint64_t bytes,
                                         uint64_t batch, uint64_t window) {
  MovedSlots(bytes, count);
  std::deque<BatchPtr> open;
  for (uint64_t at = 0; at < count; at += batch) {
    // The slots of a batch are free again only when that batch is over.
    if (open.size() == window) {
      RETURN_IF_ERROR(Wait(open.front()));
      open.pop_front();
    }
    ASSIGN_OR_RETURN(BatchPtr next,
                     PostOne(key + at, std::min(batch, count - at), bytes, at, kTimeline));
    open.push_back(std::move(next));
  }
  for (const BatchPtr& last : open) RETURN_IF_ERROR(Wait(last));
  return MonotonicNanoseconds();
}

absl::Status BenchEnd::Park(uint64_t key, uint64_t count, uint64_t bytes) {
  const PostTarget target = target_;
  target_.deadline = absl::Hours(1);
  absl::Status status;
  for (uint64_t at = 0; at < count && status.ok(); at += kMostPerCall) {
    auto batch = PostOne(key + at, std::min(kMostPerCall, count - at), bytes, at, kParkedTimeline);
    status = batch.status();
    if (status.ok()) parked_.push_back(*std::move(batch));
  }
  target_ = target;
  return status;
}

absl::Status BenchEnd::Unpark() {
  for (const BatchPtr& batch : parked_) RETURN_IF_ERROR(FromFerry(ferry_batch_cancel(batch.get())));
  for (const BatchPtr& batch : parked_) Wait(batch).IgnoreError();  // ends with CANCELLED, as asked
  parked_.clear();
  return absl::OkStatus();
}

absl::Status BenchEnd::Fill(uint64_t number) {
  const uint64_t bytes = ferry_arena_bytes(arena_.get());
  // The same for both numbers of a pair until the last step.
  const uint64_t salt = number / 2 * 0xd6e8feb86659fd93u ^ (number % 2 == 0 ? 0 : UINT64_MAX);
  ForgetMoved();
  std::vector<uint64_t> words(kPortion / 8);
  for (uint64_t at = 0; at < bytes; at += kPortion) {
    for (uint64_t i = 0; i < words.size(); ++i) {
      words[i] = (at / 8 + i + 1) * 0x9e3779b97f4a7c15u ^ salt;
    }
    RETURN_IF_ERROR(FromFerry(
        ferry_arena_write(arena_.get(), at, words.data(), std::min(kPortion, bytes - at))));
  }
  return absl::OkStatus();
}

absl::Status BenchEnd::AddSum(uint64_t offset, uint64_t bytes, uint64_t& sum) const {
  std::vector<uint64_t> words(std::min(kPortion, bytes + 7) / 8);
  for (uint64_t at = 0; at < bytes; at += kPortion) {
    const uint64_t now = std::min(kPortion, bytes - at);
    if (now % 8 != 0) words[now / 8] = 0;  // clears the bytes of the last word that were not read
    RETURN_IF_ERROR(FromFerry(ferry_arena_read(arena_.get(), offset + at, words.data(), now)));
    for (uint64_t i = 0; i < (now + 7) / 8; ++i) sum = (sum ^ words[i]) * 0x9e3779b97f4a7c15u + 1;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> BenchEnd::SumOfMoved() const {
  uint64_t sum = 0;
  for (const auto& [bytes, count] : moved_slots_) {
    const uint64_t slots = Slots(bytes);
    const uint64_t stride = StrideOf(slots);
    if (count == slots) {  // all slots were moved: read them in one go
      RETURN_IF_ERROR(AddSum(0, slots * bytes, sum));
      continue;
    }
    for (uint64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(AddSum(OffsetOf(i, slots, stride, bytes), bytes, sum));
    }
  }
  RETURN_IF_ERROR(AddSum(0, moved_blocks_, sum));
  // What the end that began has sent is in the other end's second half, and the other way round.
  const bool began = target_.end == End::kSend;
  RETURN_IF_ERROR(AddSum(began ? 0 : moved_ping_, moved_ping_, sum));
  RETURN_IF_ERROR(AddSum(began ? moved_ping_ : 0, moved_ping_, sum));
  return sum;
}

}  // namespace ferry::tools
