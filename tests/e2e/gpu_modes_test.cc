// SPDX-License-Identifier: Apache-2.0
// Compute modes and MIG instances, as the table in docs/gpus.md has them, what joins GPUs, and who
// may lock one, on the fake CUDA.
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/await.h"
#include "tests/support/fixtures.h"
#include "tests/support/raw_session.h"

namespace ferry::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class GpuModesTest : public ClusterTest {
 protected:
  // One node with a host device, 0, and GPUs from 1 on; this process and its children see the same.
  void StartNode(int gpus, const std::string& mode, ClusterOptions options = {}) {
    options.nodes = 1;
    options.devices = 1;
    options.gpus = gpus;
    options.fake_cuda = mode;
    settings_ = absl::StrCat("devices=", gpus, ";seed=", getpid(), ";", mode);
    setenv("FERRY_CUDA_LIBRARY", FakeCudaLibrary(), 1);
    setenv("FERRY_FAKE_CUDA", settings_.c_str(), 1);
    Start(options);
  }
  // What the daemon says to one who asks it for memory of the first GPU, and uses no CUDA itself.
  google::rpc::Status TryAllocate() {
    RawSession session(node(0).client_dir());
    v1::AttachRequest hello;
    hello.mutable_hello()->set_protocol_min(2);
    hello.mutable_hello()->set_protocol_max(2);
    hello.mutable_hello()->set_name("modes");
    EXPECT_TRUE(session.Ask(std::move(hello)).has_welcome());
    v1::AttachRequest request;
    request.mutable_register_arena()->set_device_id(1);
    request.mutable_register_arena()->set_bytes(4096);
    request.mutable_register_arena()->set_memory(v1::ARENA_MEMORY_CUDA_ALLOCATE);
    return session.Ask(std::move(request)).error();
  }

  std::string Ferryctl(std::vector<std::string> arguments, int status = 0) {
    arguments.insert(arguments.begin(),
                     {FerryctlProgram(), "--runtime-dir", node(0).runtime_dir()});
    const Finished finished = RunProgram(arguments);
    EXPECT_EQ(finished.status, status) << finished.output;
    return finished.output;
  }
  // What a daemon with these GPUs of a fake CUDA of its own says, which does not start.
  static std::string Refused(const std::string& gpus, const std::string& settings) {
    const TemporaryDirectory directory;
    const Finished finished =
        RunProgram({"/usr/bin/env", absl::StrCat("FERRY_CUDA_LIBRARY=", FakeCudaLibrary()),
                    absl::StrCat("FERRY_FAKE_CUDA=seed=", getpid(), ";", settings), FerrydProgram(),
                    "--runtime-dir", directory / "run", "--gpus", gpus});
    EXPECT_EQ(finished.status, 78) << finished.output;
    return finished.output;
  }

  std::string settings_;
};

TEST_F(GpuModesTest, AnExclusiveGpuIsTheDaemonsAloneAndAClientIsToldSo) {
  StartNode(1, "exclusive=1");
  EXPECT_EQ(NameOf(TryAllocate()), "OK");
  ClientProcess client(node(0).client_dir(), "second");
  EXPECT_THAT(
      client.Tell("arena 1 4096"),
      ::testing::AllOf(StartsWith("FAILED_PRECONDITION/DEVICE_UNKNOWN"),
                       HasSubstr("exclusive-process mode and another process has it, as the "
                                 "daemon does (use the default mode or MPS)")));
  EXPECT_THAT(client.Tell("arena 0 4096"), StartsWith("OK"));
  EXPECT_EQ(client.Finish(), 0);
}

TEST_F(GpuModesTest, AnExclusiveGpuThatAnotherProcessHasIsRefusedByTheDaemon) {
  StartNode(1, "exclusive=1");
  void* const library = dlopen(FakeCudaLibrary(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto retain =
      reinterpret_cast<int (*)(void**, int)>(dlsym(library, "cuDevicePrimaryCtxRetain"));
  const auto release =
      reinterpret_cast<int (*)(int)>(dlsym(library, "cuDevicePrimaryCtxRelease_v2"));
  void* context = nullptr;
  ASSERT_EQ(init(0), 0);
  ASSERT_EQ(retain(&context, 0), 0);
  const google::rpc::Status refused = TryAllocate();
  EXPECT_EQ(NameOf(refused), "UNAVAILABLE/NOT_READY");
  EXPECT_THAT(refused.message(), HasSubstr("exclusive-process mode and another process has it"));
  ASSERT_EQ(release(0), 0);
  EXPECT_EQ(NameOf(TryAllocate()), "OK");
}

TEST_F(GpuModesTest, AProhibitedGpuIsRefused) {
  StartNode(1, "prohibited=1");
  const google::rpc::Status refused = TryAllocate();
  EXPECT_EQ(NameOf(refused), "UNAVAILABLE/NOT_READY");
  EXPECT_THAT(refused.message(), HasSubstr("or in prohibited mode"));
}

// Instances have no access to each other's memory, and may be named as the driver's tools do.
TEST_F(GpuModesTest, MigInstancesAreDevicesOfTheirOwnWithoutARouteBetweenThem) {
  StartNode(2, "no_peer=1");
  ClientProcess source(node(0).client_dir(), "source");
  ASSERT_EQ(source.Tell("arena 1 4096"), "OK 0");
  const auto status = [&](int device) {
    ClientProcess destination(node(0).client_dir(), "destination");
    EXPECT_EQ(destination.Tell(absl::StrCat("arena ", device, " 4096")), "OK 0");
    EXPECT_EQ(destination.Tell(absl::StrCat("receive ", device, " 1 k 0 0 4096")), "OK 0");
    EXPECT_THAT(source.Tell(absl::StrCat("send 1 ", device, " k 0 0 4096")), StartsWith("OK"));
    return destination.Tell("wait 0 30000");
  };
  EXPECT_THAT(status(2), StartsWith("FAILED_PRECONDITION/ROUTE_UNAVAILABLE"));
  EXPECT_EQ(status(1), "OK");
  const std::string uuid = node(0).admin().Devices().devices(1).device().uuid();
  std::string name = "MIG-";
  for (size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) name += '-';
    absl::StrAppend(&name, absl::Hex(static_cast<unsigned char>(uuid[i]), absl::kZeroPad2));
  }
  const auto daemon_with = [&](const std::string& gpus) {
    return RunProgram(
        {FerrydProgram(), "--runtime-dir", nodes().directory() / "second", "--gpus", gpus});
  };
  EXPECT_THAT(daemon_with(name).output, HasSubstr("another daemon has it"));
  name.back() = 'f';
  EXPECT_THAT(daemon_with(name).output, HasSubstr("and not this one"));
}

TEST_F(GpuModesTest, AGpuThatIsNamedTwiceIsNotTakenForAnotherDaemons) {
  const int seed = getpid();
  const std::string bytes(reinterpret_cast<const char*>(&seed), sizeof(seed));
  const std::string uuid =
      absl::StrCat("GPU-66657272-792d-6661-6b65-2d", absl::BytesToHexString(bytes), "00");
  EXPECT_THAT(Refused(absl::StrCat("0,", uuid), "devices=1"),
              HasSubstr("devices.gpus names it twice"));
}

TEST_F(GpuModesTest, AGpuWhoseMemoryCannotBeSharedIsLeftOutWithTheReason) {
  EXPECT_THAT(Refused("0", "no_vmm=1"), HasSubstr("has no virtual memory management"));
}

TEST_F(GpuModesTest, ARefusedReleaseSaysWhoHoldsTheGpuAndChangesNothing) {
  StartNode(1, "");
  ClientProcess client(node(0).client_dir(), "holder");
  ASSERT_EQ(client.Tell("arena 1 4096"), "OK 0");
  EXPECT_THAT(Ferryctl({"devices", "release", "1"}, 1),
              HasSubstr("largest holders: session 1 (holder) 2097152 bytes"));
  EXPECT_EQ(NameOf(TryAllocate()), "OK");
}

TEST_F(GpuModesTest, WithoutNvmlTheDriverIsWhatItSaysItself) {
  ClusterOptions options;
  options.launchers = {{"/usr/bin/env", "FERRY_NVML_LIBRARY=libnowhere.so"}};
  StartNode(1, "version=12080", std::move(options));
  EXPECT_EQ(node(0).admin().Status().gpus(), "1, driver of CUDA 12.8");
}

// Where devices.gpus names GPUs the start is refused instead (GpuTest.BelongsToOneDaemon).
TEST_F(GpuModesTest, ANodeWhoseDriverIsMissingServesWithoutItsGpus) {
  ClusterOptions options;
  options.devices = 1;
  options.gpus = 1;
  options.launchers = {{"/usr/bin/env", "FERRY_CUDA_LIBRARY=libnowhere.so"}, {}};
  cluster_ = std::make_unique<Cluster>(options);
  const std::string named = ReadFile(node(0).config_file());
  ASSERT_THAT(named, HasSubstr("gpus: [0]"));
  WriteFile(node(0).config_file(), absl::StrReplaceAll(named, {{"gpus: [0]", "gpus: all"}}));
  ASSERT_TRUE(nodes().Start());
  EXPECT_THAT(node(0).Log(), HasSubstr("membership.nodes has ids for 1 GPUs of this node, which "
                                       "serves without them"));
  EXPECT_THAT(node(0).admin().Status().gpus(), HasSubstr("none: open libnowhere.so"));
  End a = OpenEnd(0, 4096), b = OpenEnd(1, 4096);
  ExpectTransfer(a, b, "between host devices");
  // Whoever names the one that is missing is told so at once, there and at the peer.
  EXPECT_EQ(NameOf(TryAllocate()), "NOT_FOUND/DEVICE_UNKNOWN");
  Session session = nodes().Open(1);
  Result<Batch> to_it =
      session.Send(nodes().Device(1), {Transfer(nodes().Device(0, 1), "nobody has it", {})});
  ASSERT_THAT(to_it.status(), IsOk());
  EXPECT_THAT(to_it->Wait(kSoon), Is("INVALID_ARGUMENT/DEVICE_UNKNOWN"));
}

TEST_F(GpuModesTest, WhatJoinsTheGpusIsShown) {
  StartNode(3, "nvlinks=6;nvswitch=1");
  const auto shown = node(0).admin().Devices();
  ASSERT_EQ(shown.devices_size(), 4);
  EXPECT_EQ(shown.devices(0).gpu_links_size(), 0) << "a host device";
  EXPECT_EQ(shown.devices(2).numa_node(), 0);
  EXPECT_EQ(shown.devices(3).numa_node(), 1);
  ASSERT_EQ(shown.devices(2).gpu_links_size(), 2);
  EXPECT_EQ(shown.devices(2).gpu_links(0).global_device_id(), 1u);
  EXPECT_EQ(shown.devices(2).gpu_links(1).global_device_id(), 3u);
  EXPECT_EQ(shown.devices(2).gpu_links(1).nvlinks(), 6);
  EXPECT_THAT(Ferryctl({"devices"}), HasSubstr(" 6 to 1,3 "));
  const std::string json = Ferryctl({"--json", "devices"});
  EXPECT_THAT(json, HasSubstr(R"("nvlinks":6)"));
  EXPECT_THAT(json, HasSubstr(R"("numa_node":1)"));
}

TEST_F(GpuModesTest, GpusThatNoNvlinkJoinsSaySo) {
  StartNode(2, "nvlinks=0");
  EXPECT_THAT(Ferryctl({"devices"}), HasSubstr(" none to 2 "));
}

TEST_F(GpuModesTest, WhatIsNotKnownOfAVirtualGpuIsNoError) {
  StartNode(2, "virtual_gpus=1");
  EXPECT_THAT(Ferryctl({"devices"}), ::testing::ContainsRegex("not known +not known to 2 "));
  EXPECT_FALSE(node(0).admin().Devices().devices(1).context()) << "nobody uses it";
}

// The next daemon may be another user's.
TEST_F(GpuModesTest, ALockMayBeOpenedByAnyUserWhateverTheUmaskOfItsFirstDaemon) {
  const auto seed = static_cast<uint32_t>(getpid());
  const std::string lock = absl::StrCat(
      "/run/lock/ferry-GPU-66657272-792d-6661-6b65-2d",
      absl::BytesToHexString(std::string(reinterpret_cast<const char*>(&seed), sizeof(seed))),
      "00.lock");
  unlink(lock.c_str());  // of another test of this process
  const mode_t before = umask(077);
  StartNode(1, "");
  umask(before);
  struct stat made = {};
  ASSERT_EQ(stat(lock.c_str(), &made), 0) << strerror(errno);
  EXPECT_EQ(made.st_mode & 0777u, 0444u);
}

}  // namespace
}  // namespace ferry::testing
