// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace ferry::tools {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

MATCHER_P3(Is, severity, check, found, "") {
  return arg.severity == severity && arg.check == check &&
         ::testing::SafeMatcherCast<const std::string&>(HasSubstr(found)).Matches(arg.found) &&
         (severity < Severity::kWarning || !arg.advice.empty());
}

// A host of files.
class FindingsTest : public ::testing::Test {
 protected:
  FindingsTest() {
    std::string path = (std::filesystem::temp_directory_path() / "ferry-XXXXXX").string();
    root_ = mkdtemp(path.data());
    Write("/proc/7/limits",
          "Limit                     Soft Limit           Hard Limit           Units     \n"
          "Max locked memory         unlimited            unlimited            bytes     \n"
          "Max open files            524288               524288               files     \n");
    Write(kShmem, "always within_size advise [never] deny force\n");
  }
  ~FindingsTest() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  static constexpr char kShmem[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  std::string root_;
};

TEST_F(FindingsTest, OfAHostThatLacksNothingAllIsWell) {
  EXPECT_THAT(HostFindings(root_, 7, false, false), Each(Field(&Finding::severity, Severity::kOk)));
}

TEST_F(FindingsTest, WhatALimitWillRefuseLaterIsAWarning) {
  Write("/proc/7/limits",
        "Max locked memory         65536                65536                bytes     \n"
        "Max open files            1024                 524288               files     \n");
  EXPECT_THAT(HostFindings(root_, 7, false, false),
              AllOf(Contains(Is(Severity::kWarning, "descriptors", "may open 1024")),
                    Contains(Is(Severity::kOk, "memlock", "may lock 65536 bytes"))));
  EXPECT_THAT(HostFindings(root_, 7, true, false),
              Contains(Is(Severity::kWarning, "memlock", "may lock 65536 bytes")));
  // Of no process that is known nothing is said.
  EXPECT_THAT(HostFindings(root_, 0, true, false),
              Each(Field(&Finding::check, Not(HasSubstr("memlock")))));
}

TEST_F(FindingsTest, WhatTheHostHasAndTheDaemonDoesNotTakeIsAWarning) {
  Write("/sys/class/infiniband/mlx5_0/node_guid", "0\n");
  Write("/dev/nvidiactl", "");
  Write(kShmem, "always within_size advise never [deny] force\n");
  EXPECT_THAT(HostFindings(root_, 7, false, false),
              AllOf(Contains(Is(Severity::kWarning, "rdma", "UCX is not open")),
                    Contains(Is(Severity::kWarning, "gpu devices", "the daemon has no GPU")),
                    Contains(Is(Severity::kWarning, "hugepages", "is deny"))));
  EXPECT_THAT(HostFindings(root_, 7, true, true),
              AllOf(Contains(Is(Severity::kOk, "rdma", "UCX is open")),
                    Contains(Is(Severity::kOk, "gpu devices", "has GPUs"))));
}

TEST_F(FindingsTest, OfTheDaemonAndItsPeers) {
  admin::v1::GetStatusResponse status;
  status.set_node("node-a");
  status.set_version("0.1.0");
  status.set_draining(true);
  status.set_ucx("1.22.0, by eth0");
  status.set_nccl("not opened: this node has no GPU");
  status.set_gpus("none: open libcuda.so.1: no such file");
  const auto add = [&](const std::string& node, const std::string& state,
                       const std::string& error) {
    admin::v1::Peer* const peer = status.add_peers();
    peer->set_node(node);
    peer->set_state(state);
    peer->set_error(error);
  };
  add("up", "up", "mapped: node-c is on another host");
  status.mutable_peers(0)->set_version("0.1.7");
  add("older", "up", "");
  status.mutable_peers(1)->set_version("0.0.9");
  add("idle", "idle", "");
  add("knocks", "idle", "knock at knocks: refused");
  add("lost", "lost", "was silent for 5 s");
  add("other", "refused", "'other' is not among membership.nodes");
  EXPECT_THAT(DaemonFindings(status, "0.2.0"),
              AllOf(Contains(Is(Severity::kWarning, "daemon", "node-a drains")),
                    Contains(Is(Severity::kWarning, "version", "ferryd is 0.1.0, ferryctl 0.2.0")),
                    Contains(Is(Severity::kOk, "ucx", "1.22.0")),
                    Contains(Is(Severity::kNote, "nccl", "no GPU")),
                    Contains(Is(Severity::kNote, "gpus", "no GPU: open libcuda.so.1")),
                    Contains(Is(Severity::kOk, "peer up", "up")),
                    Contains(Is(Severity::kWarning, "peer older",
                                "up, of version 0.0.9; this one is 0.1.0")),
                    Contains(Is(Severity::kNote, "peer idle", "idle")),
                    Contains(Is(Severity::kWrong, "peer knocks", "refused")),
                    Contains(Is(Severity::kWrong, "peer lost", "was silent for 5 s")),
                    Contains(Is(Severity::kWarning, "peer other", "not among"))));
}

TEST_F(FindingsTest, AFastRoadThatIsNotTakenIsAWarning) {
  admin::v1::ExplainRouteResponse routes;
  EXPECT_THAT(RouteFindings("node-b", false, routes),
              Contains(Is(Severity::kWrong, "routes to node-b", "none")));
  const auto add = [&](ferry::v1::Route route, const std::string& why) {
    admin::v1::RouteOption* const option = routes.add_options();
    option->set_route(route);
    option->set_available(why.empty());
    option->set_reason(why);
  };
  add(ferry::v1::ROUTE_MAPPED, "node-b runs as uid 7, which peer.uids does not list");
  add(ferry::v1::ROUTE_TCP, "");
  add(ferry::v1::ROUTE_NCCL, "NCCL is 2.28.9 here and 2.27.3 at node-b");
  EXPECT_THAT(RouteFindings("node-b", false, routes),
              AllOf(Contains(Is(Severity::kOk, "routes to node-b", "tcp")),
                    Contains(Is(Severity::kWarning, "routes to node-b", "no mapped: node-b runs")),
                    Not(Contains(Is(Severity::kWarning, "routes to node-b", "nccl")))));
  EXPECT_THAT(RouteFindings("node-b", true, routes),
              Contains(Is(Severity::kWarning, "GPU routes to node-b", "no nccl: NCCL is 2.28.9")));
  routes.mutable_options(0)->set_reason(
      "connect to /run/ferry-b/peer/peer.sock: No such file or directory");
  EXPECT_THAT(RouteFindings("node-b", false, routes),
              Contains(Field(&Finding::advice, HasSubstr("if each one's runtime_dir is mounted"))));
  routes.mutable_options(0)->set_reason("node-b is on another host");
  EXPECT_THAT(RouteFindings("node-b", false, routes),
              Not(Contains(Field(&Finding::severity, Severity::kWarning))));
}

TEST_F(FindingsTest, ALibraryThatIsWantedAndNotThereIsAWarning) {
  admin::v1::GetStatusResponse status;
  status.set_ucx("not opened: transfer.order does not name ucx");
  status.set_nccl("open libnccl.so.2: cannot open shared object file");
  EXPECT_THAT(DaemonFindings(status, ""),
              AllOf(Contains(Is(Severity::kNote, "ucx", "does not name")),
                    Contains(Is(Severity::kWarning, "nccl", "cannot open"))));
}

TEST_F(FindingsTest, OfGpusThatDoNotReachOneAnotherEachPairIsToldOnce) {
  admin::v1::ListDevicesResponse devices;
  EXPECT_THAT(GpuFindings(devices, 1, 1), Each(Field(&Finding::found, "no GPU")));
  constexpr uint64_t kGpus = 6;
  const auto set_access = [&](bool access) {
    devices.clear_devices();
    for (uint64_t id = 1; id <= kGpus; ++id) {
      auto* const gpu = devices.add_devices();
      gpu->set_local(true);
      gpu->mutable_device()->set_kind(ferry::v1::Device::KIND_GPU);
      gpu->mutable_device()->set_global_device_id(id);
      for (uint64_t other = 1; other <= kGpus; ++other) {
        if (other == id) continue;
        auto* const link = gpu->add_gpu_links();
        link->set_global_device_id(other);
        link->set_peer_access(access);
      }
    }
  };
  set_access(true);
  EXPECT_THAT(GpuFindings(devices, 1, 1), Each(Field(&Finding::severity, Severity::kOk)));
  set_access(false);
  EXPECT_THAT(GpuFindings(devices, 1, 2),
              AllOf(Contains(Is(Severity::kWarning, "peer access",
                                "none between GPUs 1 and 2, 1 and 3, 1 and 4, 1 and 5, 1 and 6, 2 "
                                "and 3, 2 and 4, 2 and 5, and 7 more pairs")),
                    Contains(Is(Severity::kNote, "CUDA IPC", "another PID namespace"))));
}

}  // namespace
}  // namespace ferry::tools
