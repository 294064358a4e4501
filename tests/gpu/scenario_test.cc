// SPDX-License-Identifier: Apache-2.0
// What XLA and JAX test of transfers between hosts, between GPUs here; and what they do not.
//
// clang-format off
// | theirs (se_gpu_pjrt_client_multi_gpu_test, array_test) | here |
// |---|---|
// | SuccessfulCrossHostSendReceive, ...Transfer        | ArraysOfBothDirections |
// | FailedCrossHost...SrcAndDstAddressable             | none fail here: cases `local`, `self` |
// | Failed...ArgsSizeMismatch                          | none: a batch is one list |
// | AsyncCopyToDevice, ResultsHaveIndividual...Events  | EachOfABatchHasItsOwnDefinitionAndEnd |
// | CopyErrorBuffer..., CopyDelayedErrorBuffer...      | WhatGoesWrongEndsBothEndsAndNoMore |
// | SendErrorNoDeadLock, RecvErrorNoDeadLock           | the same |
// | DeleteBufferThenFulfillBufferNoDeadLock            | the same |
// | InterProcessCollectiveInit (eager)                 | nccl_test: OperatorsWarm... |
// | AbortCollectivesOnFailure                          | failure_test, nccl_test |
// | single_device_sharding (numpy, uncommitted)        | EveryTypeBringsItsBytes |
// | named_sharding, mixed_local_and_remote, to_device  | ShardsByRowsBecomeShardsByColumns |
// | named_sharding_replicated                          | OneBufferGoesToSeveralAtOnce |
// | batched                                            | BatchesOfArraysOfOtherSizesAndTypes |
// | cpu_error, device_put_to_cpu                       | none fail here: transfer_test |
// | (none) mismatched order, two batches in flight     | ArraysOfBothDirections |
// | (none) other size, missing peer, poison, cancel    | WhatGoesWrongEndsBothEndsAndNoMore |
// | (none) every dtype                                 | EveryTypeBringsItsBytes |
// | (none) zero bytes, > 2 GiB, several clients        | transfer_test |
// | (none) peer dies, peer comes back                  | failure_test |
// | (none) reuse, count, eviction of comms             | nccl_test |
// | (none) crossed pairs                               | nccl_cliques_test |
// clang-format on
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ferry/dlpack.hpp"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class GpuScenarioTest : public GpuTest, public ::testing::WithParamInterface<GpuCase> {
 protected:
  PostOptions options(uint32_t timeline = 0) const {
    PostOptions options;
    options.route = GetParam().route;
    options.over_timeline = timeline;
    return options;
  }
  bool StartEnds(uint64_t bytes) {
    if (!StartFor(GetParam())) return false;
    source_ = OpenSource(GetParam(), bytes);
    destination_ = OpenDestination(GetParam(), bytes);
    return true;
  }
  void CloseEnds() override {
    source_ = {};
    destination_ = {};
  }

  End source_, destination_;
};

// Of each a small array at an odd place, in one batch, received in another order than sent.
TEST_P(GpuScenarioTest, EveryTypeBringsItsBytes) {
  constexpr uint64_t kRoom = 16 * 1024;  // of one array and what is around it
  const std::vector<int64_t> shape = {3, 5, 13};
  constexpr uint64_t kElements = 3 * 5 * 13, kTypes = FERRY_F4E2M1FN + 1;
  if (!StartEnds(kRoom * kTypes)) return;
  std::vector<Transfer> sends, receives;
  const auto at = [](int type) { return kRoom * static_cast<uint64_t>(type) + 101; };
  const auto bytes = [](int type) {
    const auto known = dlpack::ToDlpack(type);
    const uint64_t bits = known ? known->bits : 4;  // F4E2M1FN, which it has no name for
    return (kElements * bits + 7) / 8;
  };
  Fill(destination_.arena, 0, kRoom * kTypes, 999);
  for (int type = FERRY_PRED; type <= FERRY_F4E2M1FN; ++type) {
    Fill(source_.arena, at(type), bytes(type), static_cast<uint64_t>(type));
    for (std::vector<Transfer>* half : {&sends, &receives}) {
      End& end = half == &sends ? source_ : destination_;
      const End& other = half == &sends ? destination_ : source_;
      Transfer transfer(other.device, absl::StrCat("type ", type),
                        {end.arena.Range(at(type), bytes(type))});
      transfer.data_type = type;
      transfer.shape = shape;
      half->push_back(std::move(transfer));
    }
  }
  std::reverse(receives.begin(), receives.end());
  Batch received = Must(destination_.session.Receive(destination_.device, receives, options()));
  Batch sent = Must(source_.session.Send(source_.device, sends, options(1)));
  ASSERT_THAT(received.Wait(kSoon), IsOk());
  ASSERT_THAT(sent.Wait(kSoon), IsOk());
  std::string expected(kRoom * kTypes, '\0'), seen(expected.size(), '\0');
  FillPattern(expected.data(), expected.size(), 999);
  for (int type = FERRY_PRED; type <= FERRY_F4E2M1FN; ++type) {
    FillPattern(expected.data() + at(type), bytes(type), static_cast<uint64_t>(type));
  }
  ASSERT_THAT(destination_.arena.Read(0, seen.data(), seen.size()), IsOk());
  EXPECT_EQ(std::mismatch(seen.begin(), seen.end(), expected.begin()).first - seen.begin(),
            static_cast<ptrdiff_t>(seen.size()));
}

// n there and m back at once, into zeroed buffers; what was sent stays as it is. Every second time
// the sends are posted first, and in the opposite order.
TEST_P(GpuScenarioTest, ArraysOfBothDirections) {
  constexpr uint64_t kCount = 256, kBytes = kCount * 4, kMost = 3;
  if (!StartEnds(2 * kMost * kBytes)) return;
  const auto iota = [](uint64_t i) {
    std::vector<int32_t> values(kCount);
    std::iota(values.begin(), values.end(), static_cast<int32_t>(1000 * i));
    return values;
  };
  const std::pair<uint64_t, uint64_t> kCases[] = {{1, 0}, {2, 0}, {3, 0}, {1, 1}, {2, 1}, {0, 3}};
  for (const auto& [there, back] : kCases) {
    for (const bool sends_first : {false, true}) {
      SCOPED_TRACE(absl::StrCat(there, " there, ", back, " back, sends first: ", sends_first));
      struct Way {
        End* from;
        End* to;
        uint64_t count;
      };
      const Way ways[] = {{&source_, &destination_, there}, {&destination_, &source_, back}};
      std::vector<Batch> batches;
      for (const Way& way : ways) {
        for (uint64_t i = 0; i < kMost; ++i) {
          ASSERT_THAT(way.from->arena.Write(i * kBytes, iota(i).data(), kBytes), IsOk());
          ASSERT_THAT(way.to->arena.Write((kMost + i) * kBytes, std::vector<int32_t>(kCount).data(),
                                          kBytes),
                      IsOk());
        }
      }
      for (const bool send : {sends_first, !sends_first}) {
        for (const Way& way : ways) {
          if (way.count == 0) continue;
          End& own = send ? *way.from : *way.to;
          const End& other = send ? *way.to : *way.from;
          std::vector<Transfer> halves;
          for (uint64_t i = 0; i < way.count; ++i) {
            halves.emplace_back(
                other.device, absl::StrCat(way.from == &source_ ? "there " : "back ", i),
                std::vector<Range>{own.arena.Range((send ? i : kMost + i) * kBytes, kBytes)});
            halves.back().data_type = FERRY_S32;
            halves.back().shape = {static_cast<int64_t>(kCount)};
          }
          if (sends_first && send) std::reverse(halves.begin(), halves.end());
          batches.push_back(Must(send ? own.session.Send(own.device, halves, options(1))
                                      : own.session.Receive(own.device, halves, options())));
        }
      }
      for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
      for (const Way& way : ways) {
        for (uint64_t i = 0; i < way.count; ++i) {
          std::vector<int32_t> seen(kCount);
          ASSERT_THAT(way.to->arena.Read((kMost + i) * kBytes, seen.data(), kBytes), IsOk());
          EXPECT_EQ(seen, iota(i));
          ASSERT_THAT(way.from->arena.Read(i * kBytes, seen.data(), kBytes), IsOk());
          EXPECT_EQ(seen, iota(i));
        }
      }
    }
  }
}

TEST_P(GpuScenarioTest, EachOfABatchHasItsOwnDefinitionAndEnd) {
  constexpr uint64_t kPiece = 64 * 1024 + 8;
  if (!StartEnds(3 * kPiece)) return;
  std::vector<Transfer> sends, receives;
  for (uint32_t i = 0; i < 3; ++i) {
    Fill(destination_.arena, i * kPiece, kPiece, 100 + i);
    sends.emplace_back(destination_.device, absl::StrCat("k", i),
                       std::vector<Range>{source_.arena.Range(i * kPiece, kPiece)});
    sends.back().defined_at = Transfer::DefinedAt{i, 1};
    receives.emplace_back(source_.device, absl::StrCat("k", i),
                          std::vector<Range>{destination_.arena.Range(i * kPiece, kPiece)});
  }
  Batch received = Must(destination_.session.Receive(destination_.device, receives, options()));
  Batch sent = Must(source_.session.Send(source_.device, sends, options(1)));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(received.TransferStatus(i).code_name(), "FAILED_PRECONDITION");  // not over
    EXPECT_TRUE(Has(destination_.arena, i * kPiece, kPiece, 100 + i));
    Fill(source_.arena, i * kPiece, kPiece, i);
    EXPECT_THAT(source_.session.Define(i, 1), IsOk());
    ASSERT_THAT(destination_.session.WaitOver(0, received.first_value() + i, kSoon), IsOk());
    EXPECT_THAT(received.TransferStatus(i), IsOk());
    EXPECT_TRUE(Has(destination_.arena, i * kPiece, kPiece, i));
  }
  EXPECT_THAT(received.Wait(kSoon), IsOk());
  EXPECT_THAT(sent.Wait(kSoon), IsOk());
}

TEST_P(GpuScenarioTest, WhatGoesWrongEndsBothEndsAndNoMore) {
  constexpr uint64_t kBytes = 1 * kMiB;
  if (!StartEnds(kBytes)) return;
  Fill(destination_.arena, 0, kBytes, 2);
  const auto send = [&](const std::string& key, uint64_t bytes, bool defined = true) {
    Transfer half(destination_.device, key, {source_.arena.Range(0, bytes)});
    half.data_type = FERRY_F32;
    if (!defined) half.defined_at = Transfer::DefinedAt{0, 1};
    PostOptions post = options();
    if (key == "nobody comes") post.deadline = milliseconds(200);
    return Must(source_.session.Send(source_.device, {half}, post));
  };
  const auto receive = [&](const std::string& key, int type = FERRY_F32) {
    Transfer half(source_.device, key, {destination_.arena.All()});
    half.data_type = type;
    return Must(destination_.session.Receive(destination_.device, {half}, options()));
  };
  const auto both = [](Batch& sent, Batch& received, const char* name, const char* text) {
    EXPECT_THAT(sent.Wait(kSoon), Is(name, HasSubstr(text)));
    EXPECT_THAT(received.Wait(kSoon), Is(name, HasSubstr(text)));
  };
  {
    Batch received = receive("size"), sent = send("size", kBytes - 4);
    both(sent, received, "FAILED_PRECONDITION/TRANSFER_MISMATCH", "1048572");
  }
  {
    Batch received = receive("type", FERRY_S32), sent = send("type", kBytes);
    both(sent, received, "FAILED_PRECONDITION/TRANSFER_MISMATCH", "S32");
  }
  {
    Batch sent = send("nobody comes", kBytes);
    EXPECT_THAT(sent.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
  }
  {
    Batch sent = send("bad before", kBytes, false);
    ASSERT_THAT(sent.Poison("its kernel failed"), IsOk());
    Batch received = receive("bad before");
    both(sent, received, "ABORTED/POISONED", "its kernel failed");
  }
  const auto matched = [&] {
    const uint64_t halves = GetParam().one_node ? 2 : 1;
    return Await(
        [&] { return node(GetParam().one_node ? 0 : 1).admin().Count("matched") == halves; });
  };
  {
    Batch received = receive("bad later"), sent = send("bad later", kBytes, false);
    ASSERT_TRUE(matched());
    ASSERT_THAT(sent.Poison("its kernel failed later"), IsOk());
    both(sent, received, "ABORTED/POISONED", "its kernel failed later");
  }
  {
    Batch received = receive("cancelled"), sent = send("cancelled", kBytes, false);
    ASSERT_TRUE(matched());
    ASSERT_THAT(received.Cancel(), IsOk());
    both(sent, received, "CANCELLED/CANCELLED", "");
  }
  EXPECT_TRUE(Has(destination_.arena, 0, kBytes, 2));
  {
    // An arena is not given away under a transfer that is to come, which then goes well.
    Fill(source_.arena, 0, kBytes, 1);
    Batch received = receive("kept"), sent = send("kept", kBytes, false);
    EXPECT_THAT(source_.arena.Release(),
                Is("FAILED_PRECONDITION/FIELD_INVALID", HasSubstr("1 transfers use it")));
    EXPECT_THAT(source_.session.Define(0, 1), IsOk());
    ASSERT_THAT(received.Wait(kSoon), IsOk());
    ASSERT_THAT(sent.Wait(kSoon), IsOk());
    EXPECT_TRUE(Has(destination_.arena, 0, kBytes, 1));
  }
}

// Three arrays of a batch, the first of another type and each of another size.
TEST_P(GpuScenarioTest, BatchesOfArraysOfOtherSizesAndTypes) {
  const int kTypes[] = {FERRY_F32, FERRY_S32, FERRY_BF16};
  const uint64_t kSizes[] = {64 * 4, 128 * 4, 192 * 2};
  if (!StartEnds(4096)) return;
  std::vector<Transfer> sends, receives;
  for (uint64_t i = 0; i < 3; ++i) {
    Fill(source_.arena, i * 1024, kSizes[i], i);
    sends.emplace_back(destination_.device, absl::StrCat(i),
                       std::vector<Range>{source_.arena.Range(i * 1024, kSizes[i])});
    sends.back().data_type = kTypes[i];
    receives.emplace_back(source_.device, absl::StrCat(i));
    receives.back().data_type = kTypes[i];
  }
  NewBuffers made = Must(destination_.session.ReceiveNew(
      destination_.device, receives, {kSizes[0], kSizes[1], kSizes[2]}, options()));
  Batch sent = Must(source_.session.Send(source_.device, sends, options(1)));
  ASSERT_THAT(made.batch.Wait(kSoon), IsOk());
  ASSERT_THAT(sent.Wait(kSoon), IsOk());
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(Has(made.arena, made.ranges[i].offset, kSizes[i], i));
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuScenarioTest, ::testing::Values(kGpuSelf, kGpuHostToGpu),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuScenarioTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp),
                         [](const auto& info) { return std::string(info.param.name); });

// Two nodes with a GPU each; what goes where is as the routes' order has it.
class MultiGpuShardingTest : public GpuTest {
 protected:
  static constexpr int64_t kRows = 64, kColumns = 96;
  static constexpr uint64_t kRow = kColumns * 4, kBytes = kRows * kRow;
  static float Element(int64_t row, int64_t column) {
    return static_cast<float>(row * 1000 + column);
  }
  // So many rows and columns of the whole, from there on.
  static std::vector<float> Part(int64_t row, int64_t rows, int64_t column, int64_t columns) {
    std::vector<float> part;
    for (int64_t i = row; i < row + rows; ++i) {
      for (int64_t j = column; j < column + columns; ++j) part.push_back(Element(i, j));
    }
    return part;
  }
  static void ExpectPart(const End& end, uint64_t offset, const std::vector<float>& part) {
    std::vector<float> seen(part.size());
    ASSERT_THAT(end.arena.Read(offset, seen.data(), part.size() * 4), IsOk());
    EXPECT_EQ(seen, part);
  }
};

// Each GPU has half of the rows and gets half of the columns: a block of its own and one of the
// other's, in one batch.
TEST_F(MultiGpuShardingTest, ShardsByRowsBecomeShardsByColumns) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  constexpr int64_t kHalfRows = kRows / 2, kHalfColumns = kColumns / 2;
  End ends[] = {Open(0, 0, kBytes), Open(1, 0, kBytes)};
  for (int64_t i = 0; i < 2; ++i) {
    const std::vector<float> rows = Part(i * kHalfRows, kHalfRows, 0, kColumns);
    ASSERT_THAT(ends[i].arena.Write(0, rows.data(), kBytes / 2), IsOk());
    Fill(ends[i].arena, kBytes / 2, kBytes / 2, 999);
  }
  std::vector<Batch> batches;
  for (uint64_t i = 0; i < 2; ++i) {
    std::vector<Transfer> sends, receives;
    for (uint64_t j = 0; j < 2; ++j) {
      // Its rows of column half j; and of the result the rows that come from j.
      sends.emplace_back(ends[j].device, absl::StrCat("from ", i));
      sends.back().strided =
          ends[i].arena.Strided(j * kRow / 2, kRow / 2, kRow, static_cast<uint64_t>(kHalfRows));
      receives.emplace_back(
          ends[j].device, absl::StrCat("from ", j),
          std::vector<Range>{ends[i].arena.Range(kBytes / 2 + j * kBytes / 4, kBytes / 4)});
      for (Transfer* half : {&sends.back(), &receives.back()}) {
        half->data_type = FERRY_F32;
        half->shape = {kHalfRows, kHalfColumns};
      }
    }
    PostOptions second;
    second.over_timeline = 1;
    batches.push_back(Must(ends[i].session.Receive(ends[i].device, receives)));
    batches.push_back(Must(ends[i].session.Send(ends[i].device, sends, second)));
  }
  for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
  for (int64_t i = 0; i < 2; ++i) {
    ExpectPart(ends[i], kBytes / 2, Part(0, kRows, i * kHalfColumns, kHalfColumns));
    ExpectPart(ends[i], 0, Part(i * kHalfRows, kHalfRows, 0, kColumns));
  }
}

// From the host to its own GPU and to the other node's, and from that GPU to both once more.
TEST_F(MultiGpuShardingTest, OneBufferGoesToSeveralAtOnce) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  End host = Open(0, -1, kBytes);
  End gpus[] = {Open(0, 0, 3 * kBytes), Open(1, 0, 3 * kBytes)};
  const std::vector<float> whole = Part(0, kRows, 0, kColumns);
  ASSERT_THAT(host.arena.Write(0, whole.data(), kBytes), IsOk());
  for (const int round : {0, 1}) {
    End& from = round == 0 ? host : gpus[0];
    std::vector<Transfer> sends;
    std::vector<Batch> batches;
    const uint64_t at = static_cast<uint64_t>(round + 1) * kBytes;
    for (End& to : gpus) {
      Fill(to.arena, at, kBytes, 999);
      const std::string key = absl::StrCat("copy ", round);
      sends.emplace_back(to.device, key,
                         std::vector<Range>{from.arena.Range(round * kBytes, kBytes)});
      batches.push_back(Receive(to, from, key, {to.arena.Range(at, kBytes)}));
    }
    PostOptions second;
    second.over_timeline = 1;
    batches.push_back(Must(from.session.Send(from.device, sends, second)));
    for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
    for (const End& to : gpus) ExpectPart(to, at, whole);
  }
}

}  // namespace
}  // namespace ferry::testing
