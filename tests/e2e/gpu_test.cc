// SPDX-License-Identifier: Apache-2.0
// Daemons with GPUs, which are the fake CUDA's: an allocation of such a GPU is a memfd, so a client
// of this test looks at its memory by mapping the descriptor.
#include <grpcpp/grpcpp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/ferry/v1/timeline_layout.h"
#include "tests/support/await.h"
#include "tests/support/fixtures.h"
#include "tests/support/grpc_channel.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;

template <typename T>
T* MapShared(int fd, uint64_t bytes) {
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  EXPECT_NE(mapped, MAP_FAILED);
  return static_cast<T*>(mapped);
}

struct Memory {
  uint64_t device = 0;
  uint64_t arena = 0;
  uint64_t bytes = 0;
  uint64_t mapped_bytes = 0;
  UniqueFd fd;
  char* data = nullptr;
};

// A client that speaks the wire itself.
class Client {
 public:
  explicit Client(Node& node) : session(node.client_dir()) {
    v1::AttachRequest request;
    v1::Hello* hello = request.mutable_hello();
    hello->set_protocol_min(2);
    hello->set_protocol_max(2);
    hello->set_name("gpu-client");
    welcome = session.Ask(std::move(request)).welcome();
    FERRY_CHECK(session.fds().size() == 2);
    pages = MapShared<ferry_timeline_pages>(session.fds()[0].get(), FERRY_TIMELINE_BYTES);
  }
  ~Client() { munmap(pages, FERRY_TIMELINE_BYTES); }

  v1::AttachResponse TryAllocate(uint64_t device, uint64_t bytes) {
    v1::AttachRequest request;
    request.mutable_register_arena()->set_device_id(device);
    request.mutable_register_arena()->set_bytes(bytes);
    request.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_ALLOCATE);
    return session.Ask(std::move(request));
  }
  Memory Allocate(uint64_t device, uint64_t bytes) {
    const v1::AttachResponse response = TryAllocate(device, bytes);
    EXPECT_EQ(NameOf(response.error()), "OK") << response.error().message();
    Memory memory{device, response.arena_registered().arena_id(), bytes,
                  response.arena_registered().mapped_bytes()};
    EXPECT_EQ(session.fds().size(), 1u);
    memory.fd = std::move(session.fds()[0]);
    memory.data = MapShared<char>(memory.fd.get(), memory.mapped_bytes);
    return memory;
  }
  v1::AttachResponse Import(const Memory& memory) {
    v1::AttachRequest request;
    request.mutable_register_arena()->set_device_id(memory.device);
    request.mutable_register_arena()->set_bytes(memory.bytes);
    request.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_VMM);
    request.mutable_register_arena()->add_segment_bytes(memory.mapped_bytes);
    return session.Ask(std::move(request), {memory.fd.get()});
  }
  Memory Host(uint64_t device, uint64_t bytes) {
    Memory memory{device, 0, bytes, bytes, MakeMemfd(bytes, ArenaSeals())};
    memory.data = MapShared<char>(memory.fd.get(), bytes);
    memory.arena = session.Register(device, bytes, {memory.fd.get()}).arena_registered().arena_id();
    EXPECT_NE(memory.arena, 0u);
    return memory;
  }

  struct Posted {
    uint64_t id = 0;
    uint64_t over = 0;
    uint64_t counter = 0;  // which belongs to one device
  };
  static constexpr uint64_t kSends = 32;  // counters of sends come after those of receives
  // Of the first `bytes`, under `key`; `defined`: only once counter 0 is that.
  Posted Send(const Memory& from, uint64_t to, const std::string& key, uint64_t bytes,
              uint64_t defined = 0) {
    v1::AttachRequest request;
    auto* batch = request.mutable_send();
    batch->set_device_id(from.device);
    batch->add_dst_global_device_ids(to);
    Fill(batch, from, key, bytes, kSends + from.device);
    if (defined > 0) {
      batch->mutable_buffers(0)->mutable_defined_at()->set_timeline(0);
      batch->mutable_buffers(0)->mutable_defined_at()->set_value(defined);
    }
    const v1::AttachResponse response = session.Ask(std::move(request));
    EXPECT_EQ(NameOf(response.error()), "OK") << response.error().message();
    return {response.send().first_transfer_id(), response.send().first_over_value(),
            kSends + from.device};
  }
  Posted Receive(const Memory& to, uint64_t from, const std::string& key, uint64_t bytes,
                 v1::Route route = v1::ROUTE_UNSPECIFIED) {
    v1::AttachRequest request;
    auto* batch = request.mutable_receive();
    batch->set_device_id(to.device);
    batch->add_src_global_device_ids(from);
    Fill(batch, to, key, bytes, to.device);
    batch->mutable_options()->set_route(route);
    const v1::AttachResponse response = session.Ask(std::move(request));
    EXPECT_EQ(NameOf(response.error()), "OK") << response.error().message();
    return {response.receive().first_transfer_id(), response.receive().first_over_value(),
            to.device};
  }
  // The number of the prepared batch of one transfer.
  uint32_t PrepareSend(const Memory& from, uint64_t to, uint64_t bytes) {
    v1::AttachRequest request;
    request.mutable_send()->set_prepare(true);
    request.mutable_send()->set_device_id(from.device);
    request.mutable_send()->add_dst_global_device_ids(to);
    Fill(request.mutable_send(), from, "prepared", bytes, 0);
    const v1::AttachResponse response = session.Ask(std::move(request));
    EXPECT_EQ(NameOf(response.error()), "OK") << response.error().message();
    return response.send().prepared_batch();
  }
  uint32_t PrepareReceive(const Memory& to, uint64_t from, uint64_t bytes) {
    v1::AttachRequest request;
    request.mutable_receive()->set_prepare(true);
    request.mutable_receive()->set_device_id(to.device);
    request.mutable_receive()->add_src_global_device_ids(from);
    Fill(request.mutable_receive(), to, "prepared", bytes, 0);
    const v1::AttachResponse response = session.Ask(std::move(request));
    EXPECT_EQ(NameOf(response.error()), "OK") << response.error().message();
    return response.receive().prepared_batch();
  }
  // As a GPU does it: nobody is rung for.
  void Fire(uint32_t batch, uint64_t n) {
    __atomic_store_n(&pages->prepared_defined[batch].value, n, __ATOMIC_SEQ_CST);
  }
  bool AwaitFired(uint32_t batch, uint64_t n) {
    return Await(
        [&] { return __atomic_load_n(&pages->prepared_over[batch].value, __ATOMIC_SEQ_CST) >= n; });
  }

  bool AwaitOver(const Posted& posted) {
    return Await([&] {
      return __atomic_load_n(&pages->over[posted.counter].value, __ATOMIC_SEQ_CST) >= posted.over;
    });
  }
  v1::Transfer Get(const Posted& posted) {
    v1::GetTransfersRequest request;
    request.add_transfer_ids(posted.id);
    v1::GetTransfersResponse response;
    const std::string token = welcome.token();
    EXPECT_THAT(
        session.Call(
            [&](auto* c) { return session.transfers().GetTransfers(c, request, &response); },
            &token),
        IsOk());
    if (response.transfers().empty()) return {};
    return response.transfers(0);
  }

  RawSession session;
  v1::Welcome welcome;
  ferry_timeline_pages* pages = nullptr;

 private:
  template <typename Batch>
  static void Fill(Batch* batch, const Memory& memory, const std::string& key, uint64_t bytes,
                   uint64_t counter) {
    auto* range = batch->add_buffers()->add_ranges();
    range->set_arena_id(memory.arena);
    range->set_length(bytes);
    batch->add_transfer_keys(key);
    batch->mutable_options()->set_over_timeline(static_cast<uint32_t>(counter));
  }
};

class GpuTest : public ClusterTest {
 protected:
  // Node i has a host device and `gpus` GPUs, with ids in this order.
  void StartNodes(int nodes, int gpus, const std::string& fake = "",
                  const std::string& limits = "") {
    ClusterOptions options;
    options.nodes = nodes;
    options.devices = 1;
    options.gpus = gpus;
    options.fake_cuda = fake;
    options.limits = limits;
    Start(options);
  }
  void Move(Client& source, const Memory& from, Client& destination, const Memory& to,
            uint64_t bytes, v1::Route route) {
    const std::string key = absl::StrCat("key-", ++keys_);
    FillPattern(from.data, bytes, keys_);
    memset(to.data, 0xEE, bytes);
    const Client::Posted receive = destination.Receive(to, from.device, key, bytes, route);
    source.Send(from, to.device, key, bytes);
    ASSERT_TRUE(destination.AwaitOver(receive));
    const v1::Transfer transfer = destination.Get(receive);
    ASSERT_EQ(NameOf(transfer.status()), "OK") << transfer.status().message();
    EXPECT_EQ(FirstDifference(to.data, bytes, keys_), bytes);
  }
  uint64_t keys_ = 0;
};

TEST_F(GpuTest, LocalBetweenGpusAndHost) {
  StartNodes(1, 2);
  Client sender(node(0)), receiver(node(0));
  ASSERT_EQ(sender.welcome.devices_size(), 3);
  EXPECT_EQ(sender.welcome.devices(0).kind(), v1::Device::KIND_HOST);
  EXPECT_EQ(sender.welcome.devices(2).kind(), v1::Device::KIND_GPU);
  EXPECT_EQ(sender.welcome.devices(2).uuid().size(), 16u);
  constexpr uint64_t kBytes = 100 * kMiB + 12345;
  const Memory host = sender.Host(0, kBytes), one = sender.Allocate(1, kBytes),
               two = receiver.Allocate(2, kBytes), same = receiver.Allocate(1, kBytes),
               other_host = receiver.Host(0, kBytes);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{8}, uint64_t{4096}, kBytes}) {
    Move(sender, one, receiver, two, bytes, v1::ROUTE_LOCAL);
    Move(sender, one, receiver, same, bytes, v1::ROUTE_LOCAL);
    Move(sender, host, receiver, two, bytes, v1::ROUTE_LOCAL);
    Move(sender, one, receiver, other_host, bytes, v1::ROUTE_LOCAL);
    Move(receiver, two, sender, one, bytes, v1::ROUTE_LOCAL);
  }
}

TEST_F(GpuTest, MappedBetweenDaemons) {
  StartNodes(2, 1);
  Client a(node(0)), b(node(1));
  constexpr uint64_t kBytes = 40 * kMiB + 7;
  const Memory gpu_a = a.Allocate(1, kBytes), gpu_b = b.Allocate(3, kBytes),
               host_a = a.Host(0, kBytes);
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4096}, kBytes}) {
    Move(a, gpu_a, b, gpu_b, bytes, v1::ROUTE_MAPPED);
    Move(b, gpu_b, a, gpu_a, bytes, v1::ROUTE_MAPPED);
    Move(a, host_a, b, gpu_b, bytes, v1::ROUTE_MAPPED);
  }
}

TEST_F(GpuTest, ByTcpToAndFromDevicesOfAnotherDaemon) {
  StartNodes(2, 1);
  Client a(node(0)), b(node(1));
  constexpr uint64_t kBytes = 40 * kMiB + 7;
  const Memory gpu_a = a.Allocate(1, kBytes), host_a = a.Host(0, kBytes),
               gpu_b = b.Allocate(3, kBytes), host_b = b.Host(2, kBytes);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4096}, kBytes}) {
    Move(a, gpu_a, b, gpu_b, bytes, v1::ROUTE_TCP);
    Move(a, host_a, b, gpu_b, bytes, v1::ROUTE_TCP);
    Move(a, gpu_a, b, host_b, bytes, v1::ROUTE_UNSPECIFIED);  // no other route joins these
  }
}

// A GPU that stores a word rings nothing.
TEST_F(GpuTest, WordsThatRingNobodyAreSeen) {
  StartNodes(1, 2);
  Client sender(node(0)), receiver(node(0));
  const Memory one = sender.Allocate(1, 4096), two = receiver.Allocate(2, 4096);
  for (uint64_t n = 1; n <= 20; ++n) {
    const std::string key = absl::StrCat("k", n);
    const Client::Posted receive = receiver.Receive(two, 1, key, 4096);
    sender.Send(one, 2, key, 4096, n);
    FillPattern(one.data, 4096, n);
    __atomic_store_n(&sender.pages->defined[0].value, n, __ATOMIC_SEQ_CST);
    ASSERT_TRUE(receiver.AwaitOver(receive)) << n;
    EXPECT_EQ(FirstDifference(two.data, 4096, n), 4096u);
  }
}

TEST_F(GpuTest, PreparedTransfersAreFiredByWordsAlone) {
  StartNodes(2, 2);
  Client a(node(0)), b(node(1));
  constexpr uint64_t kBytes = 70 * kMiB + 3;  // more than is under way at once
  const Memory one = a.Allocate(1, kBytes), two = a.Allocate(2, kBytes),
               far = b.Allocate(4, kBytes);
  const auto fire = [&](Client& receiver, const Memory& to) {
    const uint32_t receive = receiver.PrepareReceive(to, 1, kBytes);
    const uint32_t send = a.PrepareSend(one, to.device, kBytes);
    for (uint64_t n = 1; n <= 5; ++n) {
      FillPattern(one.data, kBytes, n);
      a.Fire(send, n);
      receiver.Fire(receive, n);
      ASSERT_TRUE(a.AwaitFired(send, n)) << n;
      ASSERT_TRUE(receiver.AwaitFired(receive, n)) << n;
      ASSERT_EQ(FirstDifference(to.data, kBytes, n), kBytes);
    }
    EXPECT_EQ(receiver.pages->prepared_over[receive].failures, 0u);
  };
  fire(a, two);  // local
  fire(b, far);  // mapped
}

TEST_F(GpuTest, MemoryOfTheOtherKindOfDeviceIsRefused) {
  StartNodes(1, 1);
  Client client(node(0));
  EXPECT_EQ(client.welcome.devices_size(), 2);
  EXPECT_THAT(client.TryAllocate(0, 4096).error().message(), HasSubstr("is a host device"));
  EXPECT_THAT(
      client.session.Register(1, 4096, {MakeMemfd(4096, ArenaSeals()).get()}).error().message(),
      HasSubstr("is a GPU: its memory is"));
}

TEST_F(GpuTest, FullGpusSayWhoHasThem) {
  StartNodes(1, 1, "memory_mib=64;fail_context=1", "gpu_bytes: 96MiB");
  Client client(node(0));
  EXPECT_THAT(client.TryAllocate(1, kMiB).error().message(),
              HasSubstr(absl::StrCat(kMiB, " bytes were asked for, ", 64 * kMiB, " of ", 64 * kMiB,
                                     " are free; largest holders: no session")));
  EXPECT_THAT(client.TryAllocate(1, 80 * kMiB).error().message(),
              HasSubstr("largest holders: no session of this daemon"));
  const Memory memory = client.Allocate(1, 40 * kMiB);
  const v1::AttachResponse full = client.TryAllocate(1, 40 * kMiB);
  EXPECT_EQ(NameOf(full.error()), "RESOURCE_EXHAUSTED/DEVICE_MEMORY");
  EXPECT_THAT(full.error().message(), HasSubstr(absl::StrCat("allocate ", 40 * kMiB, " bytes")));
  EXPECT_THAT(full.error().message(), HasSubstr(absl::StrCat(24 * kMiB, " of ", 64 * kMiB)));
  EXPECT_THAT(full.error().message(), HasSubstr("(gpu-client) 41943040 bytes"));
  const v1::AttachResponse capped = client.TryAllocate(1, 80 * kMiB);
  EXPECT_EQ(NameOf(capped.error()), "RESOURCE_EXHAUSTED/DEVICE_MEMORY");
  EXPECT_THAT(capped.error().message(), HasSubstr("limits.gpu_bytes"));
}

TEST_F(GpuTest, AClientThatDiesInACopyIsKeptUntilItIsOver) {
  TemporaryDirectory directory;
  const std::string gate = directory / "gate";
  WriteFile(gate, "");
  StartNodes(1, 2, absl::StrCat("gate=", gate));
  Client receiver(node(0));
  const Memory two = receiver.Allocate(2, kMiB);
  Client::Posted receive = receiver.Receive(two, 1, "k", kMiB);
  {
    Client sender(node(0));
    const Memory one = sender.Allocate(1, kMiB);
    FillPattern(one.data, kMiB, 5);
    sender.Send(one, 2, "k", kMiB);
    ASSERT_TRUE(Await([&] { return node(0).admin().Count("launched") == 2; }));
  }
  ASSERT_TRUE(Await([&] {
    const auto sessions = node(0).admin().Sessions();
    return sessions.sessions_size() == 2 && sessions.sessions(1).closing();
  }));
  EXPECT_EQ(node(0).admin().ArenaBytes(), 4 * kMiB) << "granules of what is still copied from";
  std::filesystem::remove(gate);
  ASSERT_TRUE(receiver.AwaitOver(receive));
  EXPECT_EQ(NameOf(receiver.Get(receive).status()), "OK");
  EXPECT_EQ(FirstDifference(two.data, kMiB, 5), kMiB);
  EXPECT_TRUE(Await([&] { return node(0).admin().ArenaBytes() == 2 * kMiB; }));
}

TEST_F(GpuTest, ACopyThatFailsEndsItsTransferOnly) {
  StartNodes(1, 2, "fail_copy=1");
  Client sender(node(0)), receiver(node(0));
  const Memory one = sender.Allocate(1, 8192), two = receiver.Allocate(2, 8192);
  const Client::Posted receive = receiver.Receive(two, 1, "k", 8192);
  sender.Send(one, 2, "k", 8192);
  ASSERT_TRUE(receiver.AwaitOver(receive));
  EXPECT_EQ(NameOf(receiver.Get(receive).status()), "INTERNAL/INTERNAL");
  Move(sender, one, receiver, two, 8192, v1::ROUTE_LOCAL);
}

TEST_F(GpuTest, BytesOutliveTheDaemon) {
  StartNodes(1, 1);
  auto client = std::make_unique<Client>(node(0));
  const Memory memory = client->Allocate(1, 3 * kMiB);
  EXPECT_EQ(memory.mapped_bytes, 4 * kMiB);
  FillPattern(memory.data, 3 * kMiB, 9);
  node(0).Kill();
  ASSERT_TRUE(node(0).Start());
  client = std::make_unique<Client>(node(0));
  const v1::AttachResponse again = client->Import(memory);
  ASSERT_EQ(NameOf(again.error()), "OK") << again.error().message();
  Memory back{1, again.arena_registered().arena_id(), memory.bytes, memory.mapped_bytes};
  const Memory host = client->Host(0, 3 * kMiB);
  const Client::Posted receive = client->Receive(host, 1, "k", 3 * kMiB);
  client->Send(back, 0, "k", 3 * kMiB);
  ASSERT_TRUE(client->AwaitOver(receive));
  EXPECT_EQ(FirstDifference(host.data, 3 * kMiB, 9), 3 * kMiB);
}

TEST_F(GpuTest, IsShownReleasedAndReclaimed) {
  StartNodes(1, 1);
  const auto shown = [&] { return node(0).admin().Devices().devices(1); };
  EXPECT_EQ(shown().device().kind(), v1::Device::KIND_GPU);
  EXPECT_FALSE(shown().context()) << "nobody uses it";
  EXPECT_TRUE(shown().memory_known());
  EXPECT_THAT(node(0).admin().Status().gpus(), "1, driver 580.0-fake");
  Client client(node(0));
  const Memory memory = client.Allocate(1, 4 * kMiB);
  EXPECT_TRUE(shown().context());
  EXPECT_EQ(shown().memory_bytes() - shown().memory_free_bytes(), 4 * kMiB);
  const auto ctl = [&](const char* action) {
    return RunProgram(
        {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "devices", action, "1"});
  };
  EXPECT_EQ(ctl("release").status, 1);
  client.session.Release(memory.arena);
  ASSERT_TRUE(Await([&] { return !shown().context(); }));
  EXPECT_EQ(ctl("release").status, 0);
  EXPECT_TRUE(shown().released());
  EXPECT_EQ(NameOf(client.TryAllocate(1, 4096).error()), "FAILED_PRECONDITION/NOT_READY");
  const Finished negative = RunProgram(
      {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "devices", "release", "-1"});
  EXPECT_THAT(negative.output, HasSubstr("'-1' is not a whole number"));
  EXPECT_EQ(ctl("reclaim").status, 0);
  client.Allocate(1, 4096);
  const Finished table =
      RunProgram({FerryctlProgram(), "--runtime-dir", node(0).runtime_dir(), "devices"});
  EXPECT_THAT(table.output, HasSubstr("GPU-66657272-"));
}

// Ids 0 to 2 are of one node, 3 to 5 of the other; each numbers its GPUs in its own way.
TEST_F(GpuTest, OneNameMeansOneGpuOnEveryNode) {
  StartNodes(2, 2);
  const auto before = node(0).admin().Devices();
  for (const auto& row : before.devices()) {
    if (row.local()) continue;
    EXPECT_EQ(row.device().kind(), v1::Device::KIND_UNSPECIFIED) << "there is no link yet";
    EXPECT_EQ(row.device().name(), "");
  }
  const auto ctl = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir()};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return RunProgram(all);
  };
  EXPECT_THAT(ctl({"devices"}).output, HasSubstr("not known"));
  EXPECT_EQ(ctl({"route", "1", "4"}).status, 0);  // opens the link
  ASSERT_TRUE(Await([&] {
    return node(1).admin().Devices().devices(0).device().kind() == v1::Device::KIND_HOST;
  }));
  const auto here = node(0).admin().Devices(), there = node(1).admin().Devices();
  ASSERT_EQ(here.devices_size(), 6);
  ASSERT_EQ(there.devices_size(), 6);
  for (int id = 0; id < 6; ++id) {
    EXPECT_EQ(here.devices(id).device().SerializeAsString(),
              there.devices(id).device().SerializeAsString())
        << here.devices(id).device().name() << " and " << there.devices(id).device().name();
    EXPECT_NE(here.devices(id).device().name(), "");
  }
}

TEST_F(GpuTest, BelongsToOneDaemon) {
  StartNodes(1, 1);
  const std::string settings = absl::StrCat("devices=1;seed=", getpid());
  const auto second = [&](const char* gpus) {
    return RunProgram({"/usr/bin/env", absl::StrCat("FERRY_CUDA_LIBRARY=", FakeCudaLibrary()),
                       absl::StrCat("FERRY_FAKE_CUDA=", settings), FerrydProgram(), "--runtime-dir",
                       nodes().directory() / "second", "--gpus", gpus});
  };
  const Finished taken = second("0");
  EXPECT_EQ(taken.status, 75);
  EXPECT_THAT(taken.output, HasSubstr("another daemon has it"));
  const Finished missing = second("7");
  EXPECT_EQ(missing.status, 1);
  EXPECT_THAT(missing.output, HasSubstr("find GPU 7"));
  const Finished no_driver =
      RunProgram({"/usr/bin/env", "FERRY_CUDA_LIBRARY=libnowhere.so", FerrydProgram(),
                  "--runtime-dir", nodes().directory() / "second", "--gpus", "0"});
  EXPECT_EQ(no_driver.status, 1);
  EXPECT_THAT(no_driver.output, HasSubstr("open libnowhere.so: cannot open"));
}

// Locked in another directory instead it would be locked beside whoever has this one.
TEST_F(GpuTest, ALockThatIsNotOursIsTaken) {
  const uint32_t seed = 0x80000000u | static_cast<uint32_t>(getpid());
  const std::string lock = absl::StrCat(
      "/run/lock/ferry-GPU-66657272-792d-6661-6b65-2d",
      absl::BytesToHexString(std::string(reinterpret_cast<const char*>(&seed), sizeof(seed))),
      "00.lock");
  ASSERT_EQ(symlink("/nowhere", lock.c_str()), 0) << strerror(errno);
  const TemporaryDirectory directory;
  const Finished refused =
      RunProgram({"/usr/bin/env", absl::StrCat("FERRY_CUDA_LIBRARY=", FakeCudaLibrary()),
                  absl::StrCat("FERRY_FAKE_CUDA=devices=1;seed=", seed), FerrydProgram(),
                  "--runtime-dir", directory / "run", "--gpus", "0"});
  unlink(lock.c_str());
  EXPECT_EQ(refused.status, 78);
  EXPECT_THAT(refused.output, HasSubstr("is taken or not ours"));
}

}  // namespace
}  // namespace ferry::testing
