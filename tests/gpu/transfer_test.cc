// SPDX-License-Identifier: Apache-2.0
// Bytes between devices of every kind: sizes, offsets, ranges of every form, batches at once.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <random>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/gpu/gpu_fixture.h"

namespace ferry::testing {
namespace {

struct Block {
  uint64_t offset;
  uint64_t length;
};

// Exactly `bytes` of [0, room) of the arena in one of the three forms, and the same as blocks in
// order. `room` is at least twice `bytes`.
std::vector<Block> LayOut(std::mt19937_64& random, const Arena& arena, uint64_t room,
                          uint64_t bytes, Transfer* transfer) {
  const auto below = [&](uint64_t end) { return random() % end; };
  std::vector<Block> blocks;
  uint64_t block = std::max<uint64_t>(bytes / (1 + below(64)), 1);
  while (bytes % block != 0) --block;
  const uint64_t count = bytes / block;
  switch (bytes == 0 || count > 100000 ? 0 : below(3)) {
    case 0: {
      uint64_t at = 0;
      for (uint64_t left = bytes; left != 0;) {
        at += below(std::min<uint64_t>(room - at - left, 5000) + 1);
        const uint64_t length = blocks.size() == 100 ? left : 1 + below(left);
        blocks.push_back({at, length});
        at += length;
        left -= length;
      }
      std::shuffle(blocks.begin(), blocks.end(), random);
      for (const Block& one : blocks)
        transfer->ranges.push_back(arena.Range(one.offset, one.length));
      return blocks;
    }
    case 1: {
      const uint64_t stride = block + (count < 2 ? 0 : below((room - bytes) / (count - 1) + 1));
      const uint64_t extent = (count - 1) * stride + block;
      const uint64_t offset = below(room - extent + 1);
      transfer->strided = arena.Strided(offset, block, stride, count);
      for (uint64_t i = 0; i < count; ++i) blocks.push_back({offset + i * stride, block});
      return blocks;
    }
    default: {
      std::vector<uint64_t> slots(room / block - 1);
      std::iota(slots.begin(), slots.end(), 0);
      std::shuffle(slots.begin(), slots.end(), random);
      slots.resize(count);
      const uint64_t offset = below(block);
      for (const uint64_t slot : slots) blocks.push_back({offset + slot * block, block});
      transfer->blocks = arena.Blocks(offset, block, std::move(slots));
      return blocks;
    }
  }
}

// What the destination must have: `to` with the bytes of `from` in their places.
void Apply(const std::string& from, const std::vector<Block>& source, std::string* to,
           const std::vector<Block>& destination) {
  size_t at = 0;
  uint64_t used = 0;
  for (const Block& block : destination) {
    for (uint64_t done = 0; done < block.length;) {
      const uint64_t now = std::min(block.length - done, source[at].length - used);
      to->replace(block.offset + done, now, from, source[at].offset + used, now);
      done += now;
      used += now;
      if (used == source[at].length) {
        ++at;
        used = 0;
      }
    }
  }
}

class GpuTransferTest : public GpuTest, public ::testing::WithParamInterface<GpuCase> {
 protected:
  PostOptions options() const {
    PostOptions options;
    options.route = GetParam().route;
    return options;
  }
};

TEST_P(GpuTransferTest, RangesOfEveryFormBringEveryByteAndTouchNoOther) {
  if (!StartFor(GetParam())) return;
  std::mt19937_64 random(std::hash<std::string>()(GetParam().name));
  const uint64_t room = fake() ? 4 * kMiB + 13 : 24 * kMiB + 13;
  End source = OpenSource(GetParam(), room);
  End destination = OpenDestination(GetParam(), room);
  const std::vector<uint64_t> sizes = {
      0, 1, 7, 8, 4095, 65536 + 3, 1 << 20, room / 2 - 5, room / 2 - 5, 0};
  std::string given(room, '\0'), expected(room, '\0'), seen(room, '\0');
  for (size_t i = 0; i < sizes.size() + 10; ++i) {
    const uint64_t bytes = i < sizes.size() ? sizes[i] : random() % (room / 2);
    SCOPED_TRACE(::testing::Message() << "round " << i << ", " << bytes << " bytes");
    Fill(source.arena, 0, room, 2 * i);
    Fill(destination.arena, 0, room, 2 * i + 1);
    Transfer send(destination.device, "k"), receive(source.device, "k");
    const auto from = LayOut(random, source.arena, room, bytes, &send);
    const auto to = LayOut(random, destination.arena, room, bytes, &receive);
    Batch received = Must(destination.session.Receive(destination.device, {receive}, options()));
    Batch sent = Must(source.session.Send(source.device, {send}, options()));
    ASSERT_THAT(received.Wait(kSoon), IsOk());
    ASSERT_THAT(sent.Wait(kSoon), IsOk());
    FillPattern(given.data(), room, 2 * i);
    FillPattern(expected.data(), room, 2 * i + 1);
    Apply(given, from, &expected, to);
    ASSERT_THAT(destination.arena.Read(0, seen.data(), room), IsOk());
    ASSERT_TRUE(seen == expected);
    ASSERT_TRUE(Has(source.arena, 0, room, 2 * i));
  }
}

TEST_P(GpuTransferTest, AnySizeAtOddOffsets) {
  if (!StartFor(GetParam())) return;
  const int doublings = fake() ? 21 : 26;
  const uint64_t most = uint64_t{1} << doublings;
  constexpr uint64_t kAround = 4096;  // poisoned, on either side
  std::mt19937_64 random(std::hash<std::string>()(GetParam().name));
  std::uniform_real_distribution<double> size(0, doublings);
  End source = OpenSource(GetParam(), 2 * most);
  End destination = OpenDestination(GetParam(), 2 * most);
  for (uint64_t round = 0; round < 24; ++round) {
    const uint64_t bytes = round == 0 ? most - 1 : static_cast<uint64_t>(std::exp2(size(random)));
    SCOPED_TRACE(::testing::Message() << "round " << round << ", " << bytes << " bytes");
    const uint64_t from = random() % (2 * most - bytes);
    const uint64_t to = kAround + random() % (2 * most - bytes - 2 * kAround);
    Fill(source.arena, from, bytes, round);
    Fill(destination.arena, to - kAround, kAround, 1000);
    Fill(destination.arena, to, bytes, 1001);
    Fill(destination.arena, to + bytes, kAround, 1002);
    Batch receive =
        Receive(destination, source, "k", {destination.arena.Range(to, bytes)}, options());
    Batch send = Send(source, destination, "k", {source.arena.Range(from, bytes)}, options());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    ASSERT_TRUE(Has(destination.arena, to, bytes, round));
    ASSERT_TRUE(Has(destination.arena, to - kAround, kAround, 1000));
    ASSERT_TRUE(Has(destination.arena, to + bytes, kAround, 1002));
  }
}

// The patterns of gigabytes take their time, so that not every case has one.
using GpuLargeTest = GpuTransferTest;

TEST_P(GpuLargeTest, GigabytesAtAnOddOffset) {
  if (!StartFor(GetParam())) return;
  size_t free_bytes = 0, total = 0;
  ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(0)));
  ASSERT_CU(driver_->cuMemGetInfo(&free_bytes, &total));
  const uint64_t most = std::min<uint64_t>(fake() ? 64 * kMiB : 3ull << 30, free_bytes / 4);
  struct Piece {
    uint64_t bytes, from, to;
  };
  std::vector<Piece> pieces = {{most, 1001, 7}};
  const GpuCase& ends = GetParam();
  if (ends.gpus() == 2 && (ends.route == FERRY_ROUTE_LOCAL || ends.route == FERRY_ROUTE_MAPPED)) {
    std::mt19937_64 random(std::hash<std::string>()(ends.name));
    std::uniform_real_distribution<double> size(std::log2(std::min<uint64_t>(64 * kMiB, most / 8)),
                                                std::log2(most));
    for (int i = 0; i < 2; ++i) {
      const auto bytes = static_cast<uint64_t>(std::exp2(size(random)));
      pieces.push_back({bytes, random() % (most + 4096 - bytes), 1 + random() % 4000});
    }
  }
  End source = OpenSource(GetParam(), most + 4096);
  End destination = OpenDestination(GetParam(), most + 4096);
  for (uint64_t i = 0; i < pieces.size(); ++i) {
    const auto [bytes, from, to] = pieces[i];
    SCOPED_TRACE(::testing::Message() << bytes << " bytes from " << from << " to " << to);
    const uint64_t after = std::min<uint64_t>(most + 4096 - to - bytes, 4096);
    Fill(source.arena, from, bytes, i);
    // What the bytes are written over is zeros, or the piece's before.
    Fill(destination.arena, 0, to, 1000);
    Fill(destination.arena, to + bytes, after, 1002);
    Batch receive =
        Receive(destination, source, "k", {destination.arena.Range(to, bytes)}, options());
    Batch send = Send(source, destination, "k", {source.arena.Range(from, bytes)}, options());
    ASSERT_THAT(receive.Wait(4 * kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    ASSERT_TRUE(Has(destination.arena, to, bytes, i));
    ASSERT_TRUE(Has(destination.arena, 0, to, 1000));
    ASSERT_TRUE(Has(destination.arena, to + bytes, after, 1002));
  }
}

using GpuBothWaysTest = GpuTransferTest;

TEST_P(GpuBothWaysTest, BatchesOfBothDirectionsAtOnceReadTheSameBytes) {
  if (!StartFor(GetParam())) return;
  constexpr uint64_t kPiece = 256 * 1024 + 5;
  constexpr uint64_t kPieces = 8;
  End a = OpenSource(GetParam(), kPiece * (kPieces + 1));
  End b = OpenDestination(GetParam(), kPiece * (kPieces + 1));
  for (int round = 0; round < 5; ++round) {
    // The first piece of each is read by all transfers of its direction, the others are written.
    Fill(a.arena, 0, kPiece, 2 * round);
    Fill(b.arena, 0, kPiece, 2 * round + 1);
    Fill(a.arena, kPiece, kPiece * kPieces, 1000);
    Fill(b.arena, kPiece, kPiece * kPieces, 1000);
    std::vector<Batch> batches;
    PostOptions sends = options();
    sends.over_timeline = 1;
    for (uint64_t i = 0; i < kPieces; ++i) {
      const std::string key = absl::StrCat("k", i);
      const uint64_t at = kPiece * (i + 1);
      batches.push_back(Receive(b, a, key, {b.arena.Range(at, kPiece)}, options()));
      batches.push_back(Send(b, a, absl::StrCat(key, "b"), {b.arena.Range(0, kPiece)}, sends));
      batches.push_back(
          Receive(a, b, absl::StrCat(key, "b"), {a.arena.Range(at, kPiece)}, options()));
      batches.push_back(Send(a, b, key, {a.arena.Range(0, kPiece)}, sends));
    }
    for (Batch& batch : batches) ASSERT_THAT(batch.Wait(kSoon), IsOk());
    for (uint64_t i = 1; i <= kPieces; ++i) {
      ASSERT_TRUE(Has(b.arena, kPiece * i, kPiece, 2 * round));
      ASSERT_TRUE(Has(a.arena, kPiece * i, kPiece, 2 * round + 1));
    }
  }
}

TEST_P(GpuTransferTest, SeveralClientProcessesOfEachDaemon) {
  if (!StartFor(GetParam())) return;
  End source = OpenSource(GetParam(), 1);  // only for its device and node
  End destination = OpenDestination(GetParam(), 1);
  constexpr int kPairs = 3;
  constexpr uint64_t kBytes = 3 * kMiB + 1;
  std::vector<std::unique_ptr<ClientProcess>> sources, destinations;
  for (int i = 0; i < kPairs; ++i) {
    sources.push_back(std::make_unique<ClientProcess>(node(0).client_dir(), "source"));
    destinations.push_back(std::make_unique<ClientProcess>(
        node(GetParam().one_node ? 0 : 1).client_dir(), "destination"));
    EXPECT_EQ(sources[i]->Tell(absl::StrCat("arena ", source.device, " ", kBytes)), "OK 0");
    EXPECT_EQ(destinations[i]->Tell(absl::StrCat("arena ", destination.device, " ", kBytes)),
              "OK 0");
    EXPECT_EQ(sources[i]->Tell(absl::StrCat("fill 0 0 ", kBytes, " ", i)), "OK");
    EXPECT_EQ(destinations[i]->Tell(absl::StrCat("fill 0 0 ", kBytes, " ", 100 + i)), "OK");
  }
  for (int i = 0; i < kPairs; ++i) {
    const std::string rest = absl::StrCat(" k", i, " 0 0 ", kBytes, " route=", GetParam().route);
    EXPECT_EQ(destinations[i]->Tell(
                  absl::StrCat("receive ", destination.device, " ", source.device, rest)),
              "OK 0");
    EXPECT_EQ(sources[i]->Tell(absl::StrCat("send ", source.device, " ", destination.device, rest)),
              "OK 0");
  }
  for (int i = 0; i < kPairs; ++i) {
    EXPECT_EQ(destinations[i]->Tell("wait 0 30000"), "OK");
    EXPECT_EQ(destinations[i]->Tell(absl::StrCat("check 0 0 ", kBytes, " ", i)), "OK");
    EXPECT_EQ(sources[i]->Finish(), 0);
    EXPECT_EQ(destinations[i]->Finish(), 0);
  }
}

using GpuPreparedTest = GpuTransferTest;

TEST_P(GpuPreparedTest, BatchesCarryNewBytesWithEveryFiring) {
  if (!StartFor(GetParam())) return;
  constexpr uint64_t kPiece = 4096 + 1;
  constexpr uint64_t kPieces = 100;
  End source = OpenSource(GetParam(), kPiece * kPieces);
  End destination = OpenDestination(GetParam(), kPiece * kPieces);
  std::vector<Transfer> sends, receives;
  for (uint64_t i = 0; i < kPieces; ++i) {
    const std::string key = absl::StrCat("k", i);
    sends.emplace_back(destination.device, key,
                       std::vector<Range>{source.arena.Range(i * kPiece, kPiece)});
    receives.emplace_back(
        source.device, key,
        std::vector<Range>{destination.arena.Range((kPieces - 1 - i) * kPiece, kPiece)});
  }
  Prepared receive =
      Must(destination.session.PrepareReceive(destination.device, receives, options()));
  Prepared send = Must(source.session.PrepareSend(source.device, sends, options()));
  for (uint64_t round = 0; round < 10; ++round) {
    for (uint64_t i = 0; i < kPieces; ++i) Fill(source.arena, i * kPiece, kPiece, round + i);
    Fill(destination.arena, 0, kPiece * kPieces, 999);
    ASSERT_THAT(receive.Fire(), IsOk());
    ASSERT_THAT(send.Fire(), IsOk());
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    for (uint64_t i = 0; i < kPieces; ++i) {
      ASSERT_TRUE(Has(destination.arena, (kPieces - 1 - i) * kPiece, kPiece, round + i));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuTransferTest,
                         ::testing::Values(kGpuSelf, kGpuHostToGpu, kGpuToHost),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuTransferTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuHostToGpuMapped, kGpuNccl,
                                           kGpuTcp, kGpuHostToGpuTcp, kGpuToHostTcp, kGpuUcx,
                                           kGpuUcxShm, kGpuUcxTcp),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Gpu, GpuLargeTest, ::testing::Values(kGpuSelf, kGpuHostToGpu),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuLargeTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Gpu, GpuPreparedTest,
                         ::testing::Values(kGpuSelf, kGpuHostToGpu, kGpuToHost),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuPreparedTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuHostToGpuMapped, kGpuNccl,
                                           kGpuTcp, kGpuHostToGpuTcp, kGpuToHostTcp, kGpuUcx,
                                           kGpuUcxShm, kGpuUcxTcp),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Gpu, GpuBothWaysTest,
                         ::testing::Values(kGpuSelf, kGpuHostToGpu, kGpuToHost),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(MultiGpu, GpuBothWaysTest,
                         ::testing::Values(kGpuLocal, kGpuMapped, kGpuNccl, kGpuTcp, kGpuToHostTcp,
                                           kGpuUcx, kGpuUcxShm, kGpuUcxTcp),
                         [](const auto& info) { return std::string(info.param.name); });

class MultiGpuRouteTest : public GpuTest {};

// On `mapped` the destination copies, and only a GPU can read a GPU.
TEST_F(MultiGpuRouteTest, AGpuIsNotMappedByAHostDeviceOfAnotherDaemon) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  End source = Open(0, 0, kMiB);
  End destination = Open(1, -1, kMiB);
  PostOptions options;
  options.route = FERRY_ROUTE_MAPPED;
  Batch receive = Receive(destination, source, "k", {destination.arena.All()}, options);
  Batch send = Send(source, destination, "k", {source.arena.All()}, options);
  EXPECT_THAT(receive.Wait(kSoon),
              Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE", ::testing::HasSubstr("no copy engine")));
  EXPECT_THAT(send.Wait(kSoon), Is("FAILED_PRECONDITION/ROUTE_UNAVAILABLE"));
  // Without insisting it goes by tcp.
  ExpectTransfer(source, destination, "any");
}

// Memory that only the copy engine may touch: a kernel that does ends the daemon. Many small ranges
// are what kernels are for.
class MultiGpuByEngineTest : public GpuTest {
 protected:
  static constexpr uint64_t kPieces = 300;
  static constexpr uint64_t kPiece = 512;
  void ExpectScattered(End& from, End& to, const std::string& key, int route) {
    Fill(from.arena, 0, kPieces * 2 * kPiece, 1);
    Fill(to.arena, 0, kPieces * kPiece, 2);
    PostOptions options;
    options.route = route;
    Batch receive = Receive(to, from, key, {to.arena.Range(0, kPieces * kPiece)}, options);
    Transfer scattered(to.device, key, {});
    scattered.strided = from.arena.Strided(0, kPiece, 2 * kPiece, kPieces);
    Batch send = Must(from.session.Send(from.device, {scattered}, options));
    ASSERT_THAT(receive.Wait(kSoon), IsOk());
    ASSERT_THAT(send.Wait(kSoon), IsOk());
    std::string sent(kPieces * 2 * kPiece, '\0'), got(kPieces * kPiece, '\0');
    ASSERT_THAT(from.arena.Read(0, sent.data(), sent.size()), IsOk());
    ASSERT_THAT(to.arena.Read(0, got.data(), got.size()), IsOk());
    for (uint64_t i = 0; i < kPieces; ++i) {
      ASSERT_EQ(got.compare(i * kPiece, kPiece, sent, i * 2 * kPiece, kPiece), 0) << i;
    }
  }
};

TEST_F(MultiGpuByEngineTest, APeersHostMemoryThatAHostDeviceMappedFirst) {
  if (!Need(2)) return;
  StartNodes(2, 2);
  End source = Open(0, -1, kMiB), host = Open(1, -1, kMiB);
  PostOptions mapped;
  mapped.route = FERRY_ROUTE_MAPPED;
  ExpectTransfer(source, host, "host", mapped);
  End gpu = Open(1, 0, kMiB);
  ExpectScattered(source, gpu, "scattered", FERRY_ROUTE_MAPPED);
}

// One GPU's memory is of an arena of ours, the other's of cudaMalloc. The fake refuses what the
// real driver would copy by way of the host.
class MultiGpuLegacyTest : public MultiGpuByEngineTest {
 protected:
  void StartEnds(const std::string& more = "") {
    StartNodes(1, 2, "", FakeWith("ipc_at_home=1" + more));
    vmm_ = Open(0, 0, kMiB);
    legacy_.device = nodes().Gpu(0, 1);
    legacy_.session = nodes().Open(0, "legacy");
    ASSERT_CU(driver_->cuCtxSetCurrent(driver_->context(1)));
    ASSERT_CU(driver_->cuMemAlloc(&own_, kMiB));
    legacy_.arena = Must(
        cuda::ImportArena(legacy_.session, legacy_.device, reinterpret_cast<void*>(own_), kMiB));
    EXPECT_EQ(cuda::Memory(legacy_.arena), FERRY_MEMORY_CUDA_IPC);
  }
  void TearDown() override {
    vmm_ = End();
    legacy_.arena = Arena();
    if (own_ != 0) EXPECT_CU(driver_->cuMemFree(own_));
    legacy_ = End();
    MultiGpuByEngineTest::TearDown();
  }
  End vmm_, legacy_;
  CUdeviceptr own_ = 0;
};

TEST_F(MultiGpuLegacyTest, MemoryOfCudaMallocOnTheOtherGpu) {
  if (!Need(2)) return;
  StartEnds();
  ExpectScattered(vmm_, legacy_, "to", FERRY_ROUTE_LOCAL);
  ExpectScattered(legacy_, vmm_, "from", FERRY_ROUTE_LOCAL);
}

// The opening goes on when nobody waits for it any more, and is not begun a second time meanwhile.
TEST_F(MultiGpuLegacyTest, WhoGivesUpWhileItIsOpenedIsFollowedByWhoDoesNot) {
  if (!Need(2)) return;
  TemporaryDirectory directory;
  const std::string gate = directory / "gate";
  StartEnds(absl::StrCat(";open_gate=", gate));
  WriteFile(gate, "");
  for (int i = 0; i < 2; ++i) {
    const std::string key = absl::StrCat("given up ", i);
    Prepared receive = Must(legacy_.session.PrepareReceive(
        legacy_.device, {Transfer(vmm_.device, key, {legacy_.arena.All()})}));
    Prepared send = Must(
        vmm_.session.PrepareSend(vmm_.device, {Transfer(legacy_.device, key, {vmm_.arena.All()})}));
    EXPECT_TRUE(Await([&] { return node(0).admin().Count("armed") == 2; }));
    EXPECT_THAT(receive.Release(), IsOk());
    EXPECT_THAT(send.Release(), IsOk());
  }
  std::filesystem::remove(gate);
  ExpectScattered(vmm_, legacy_, "to", FERRY_ROUTE_LOCAL);
}

TEST_F(MultiGpuRouteTest, UcxSaysHowItGetsTheMemoryOfGpus) {
  if (!Need(2)) return;
  StartNodes(2, 2, kGpuUcxShm.transfer);
  if (!NeedUcx()) return;
  End source = Open(0, 0, kMiB);
  End destination = Open(1, 0, kMiB);
  const auto ucx = [&] {
    const auto explained = node(1).admin().Explain(source.device, destination.device);
    for (const auto& option : explained.options()) {
      if (option.route() == v1::ROUTE_UCX) return option;
    }
    return admin::v1::RouteOption();
  };
  EXPECT_TRUE(ucx().available()) << ucx().reason();
  EXPECT_THAT(ucx().reason(),
              ::testing::AllOf(::testing::HasSubstr(absl::StrCat("at device ", source.device,
                                                                 " staged: transfer.ucx.direct")),
                               ::testing::HasSubstr(absl::StrCat("at device ", destination.device,
                                                                 " staged: transfer.ucx"))));
  EXPECT_THAT(node(0).admin().Status().ucx(), ::testing::HasSubstr("memory of GPUs staged"));
}

TEST_F(MultiGpuRouteTest, UcxIsNotGivenTheMemoryOfGpusWithoutRdma) {
  if (!Need(2)) return;
  StartNodes(2, 2, "ucx: { shm_tls: \"posix,sysv,cma,self\" }");
  if (!NeedUcx()) return;
  std::error_code error;
  const bool rdma = !std::filesystem::is_empty("/sys/class/infiniband", error) && !error;
  EXPECT_EQ(absl::StrContains(node(0).admin().Status().ucx(),
                              "memory of GPUs staged: this host has no RDMA adapter"),
            !rdma)
      << node(0).admin().Status().ucx();
}

}  // namespace
}  // namespace ferry::testing
