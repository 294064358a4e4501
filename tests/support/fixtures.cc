// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fixtures.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ferry::testing {
namespace {

// GPUs' memory is looked at by way of so much of ours: fresh pages cost more than the copies.
constexpr uint64_t kFillAtOnce = 4 * kMiB;

}  // namespace

::testing::AssertionResult Has(const Arena& arena, uint64_t offset, uint64_t bytes, uint64_t seed) {
  uint64_t same = 0;
  if (ferry_arena_cuda_device(arena.get()) < 0) {
    same = FirstDifference(static_cast<const char*>(arena.data()) + offset, bytes, seed);
  } else {
    std::string seen(std::min(bytes, kFillAtOnce), '\0');
    for (uint64_t size = 0; same < bytes; same += size) {
      size = std::min(bytes - same, kFillAtOnce);
      const Status read = arena.Read(offset + same, seen.data(), size);
      if (!read.ok()) return ::testing::AssertionFailure() << read.ToString();
      const uint64_t alike = FirstDifference(seen.data(), size, seed, same);
      if (alike != size) {
        same += alike;
        break;
      }
    }
  }
  if (same == bytes) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "differs from pattern " << seed << " at " << same << " of " << bytes;
}

void Fill(const Arena& arena, uint64_t offset, uint64_t bytes, uint64_t seed) {
  if (ferry_arena_cuda_device(arena.get()) < 0) {
    return FillPattern(static_cast<char*>(arena.data()) + offset, bytes, seed);
  }
  std::string pattern(std::min(bytes, kFillAtOnce), '\0');
  for (uint64_t at = 0, size = 0; at < bytes; at += size) {
    size = std::min(bytes - at, kFillAtOnce);
    FillPattern(pattern.data(), size, seed, at);
    const Status written(ferry_arena_write(arena.get(), offset + at, pattern.data(), size));
    EXPECT_TRUE(written.ok()) << written.ToString();
  }
}

const RouteCase kLocalRoute = {"local", FERRY_ROUTE_LOCAL, true, ""};
const RouteCase kMappedRoute = {"mapped", FERRY_ROUTE_MAPPED, false, ""};
const RouteCase kTcpRoute = {"tcp", FERRY_ROUTE_TCP, false, ""};
const RouteCase kUcxShmRoute = {"ucx_shm", FERRY_ROUTE_UCX, false,
                                "ucx: { shm_tls: \"posix,sysv,cma,self\" }"};
const RouteCase kUcxTcpRoute = {"ucx_tcp", FERRY_ROUTE_UCX, false,
                                "ucx: { net_tls: \"tcp,self\", open_to: \"this test\" }"};

void ClusterTest::Start(const ClusterOptions& options) {
  cluster_ = std::make_unique<Cluster>(options);
  if (!cluster_->Start()) throw std::runtime_error("the daemons did not start");
}

void ClusterTest::TearDown() {
  if (cluster_ == nullptr) return;
  cluster_->ExpectCleanEnd();
  if (HasFailure()) cluster_->PrintLogs();
}

End ClusterTest::OpenEnd(size_t node, uint64_t bytes, uint64_t device, const std::string& name) {
  End end;
  end.device = nodes().Device(node, device);
  end.session = nodes().Open(node, name);
  end.arena = Must(end.session.CreateArena(end.device, bytes));
  return end;
}

void ClusterTest::ExpectTransfer(End& source, End& destination, const std::string& key,
                                 const PostOptions& options) {
  const uint64_t seed = std::hash<std::string>()(key);
  const uint64_t bytes = source.arena.bytes();
  Fill(source.arena, 0, bytes, seed);
  Fill(destination.arena, 0, bytes, seed + 1);
  Batch receive = Receive(destination, source, key, {destination.arena.All()}, options);
  Batch send = Send(source, destination, key, {source.arena.All()}, options);
  EXPECT_THAT(send.Wait(kSoon), IsOk()) << key;
  EXPECT_THAT(receive.Wait(kSoon), IsOk()) << key;
  EXPECT_TRUE(Has(destination.arena, 0, bytes, seed)) << key;
  EXPECT_TRUE(Has(source.arena, 0, bytes, seed)) << key;
}

std::string ClusterTest::Ferryctl(const std::string& command, int expected_status, size_t node) {
  std::vector<std::string> arguments = {FerryctlProgram(), "--runtime-dir",
                                        nodes()[node].runtime_dir()};
  for (absl::string_view word : absl::StrSplit(command, ' ')) arguments.emplace_back(word);
  const Finished finished = RunProgram(arguments);
  EXPECT_EQ(finished.status, expected_status) << command << "\n" << finished.output;
  return finished.output;
}

void AwaitCallConnection(Session& session) {
  Batch batch = Must(session.Send(0, {Transfer(1, "for a call", {})}));
  EXPECT_THAT(batch.Cancel(), IsOk());
  EXPECT_THAT(batch.Wait(kSoon), Is("CANCELLED/CANCELLED"));
}

std::vector<Range> RangesOf(const Arena& arena, bool by_call) {
  constexpr size_t kRanges = 40'000;  // at least four bytes each, of a packet's 131,072
  std::vector<Range> ranges = {arena.All()};
  if (by_call) ranges.resize(kRanges, arena.Range(0, 0));
  return ranges;
}

Batch Send(End& from, const End& to, const std::string& key, std::vector<Range> ranges,
           const PostOptions& options) {
  return Must(
      from.session.Send(from.device, {Transfer(to.device, key, std::move(ranges))}, options));
}

Batch Receive(End& to, const End& from, const std::string& key, std::vector<Range> ranges,
              const PostOptions& options) {
  return Must(
      to.session.Receive(to.device, {Transfer(from.device, key, std::move(ranges))}, options));
}

void RouteTest::StartForRoute(ClusterOptions options) {
  options.transfer = GetParam().transfer;
  Start(options);
}

PostOptions RouteTest::options() const {
  PostOptions options;
  options.route = GetParam().route;
  return options;
}

bool RouteTest::AwaitOffer() {
  return Await([&] {
    if (GetParam().one_node) return node(0).admin().Count("waiting") > 0;
    return node(1).admin().Dump().find("offers waiting 0") == std::string::npos;
  });
}

std::string RouteTest::route_option() const { return absl::StrCat(" route=", GetParam().route); }

std::unique_ptr<ClientProcess> RouteTest::SpawnSource(uint64_t bytes) {
  auto client = std::make_unique<ClientProcess>(node(0).client_dir(), "source");
  EXPECT_EQ(client->Tell(absl::StrCat("arena ", source_device(), " ", bytes)), "OK 0");
  return client;
}

std::unique_ptr<ClientProcess> RouteTest::SpawnDestination(uint64_t bytes) {
  auto client =
      std::make_unique<ClientProcess>(node(destination_node()).client_dir(), "destination");
  EXPECT_EQ(client->Tell(absl::StrCat("arena ", destination_device(), " ", bytes)), "OK 0");
  return client;
}

}  // namespace ferry::testing
