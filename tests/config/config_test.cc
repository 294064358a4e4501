// SPDX-License-Identifier: Apache-2.0
#include "daemon/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace ferry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

// A directory of this test's own, gone with it.
class Directory {
 public:
  Directory() {
    std::string pattern = absl::StrCat(testing::TempDir(), "/config.XXXXXX");
    path_ = mkdtemp(pattern.data());
  }
  ~Directory() { fs::remove_all(path_); }
  std::string Write(const std::string& name, const std::string& text) const {
    const fs::path file = path_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

absl::StatusOr<Config> Load(ConfigSources sources) {
  if (sources.hostname.empty()) sources.hostname = "testhost";
  return LoadConfig(sources);
}

absl::StatusOr<Config> LoadText(const std::string& text) {
  Directory directory;
  ConfigSources sources;
  sources.file = directory.Write("ferryd.yaml", text);
  return Load(sources);
}

std::string Message(const absl::StatusOr<Config>& config) {
  return std::string(config.status().message());
}

// Every file of bad/ says in its "# expect: " lines what its problems are, FILE standing for its
// path.
class BadConfigTest : public testing::TestWithParam<std::string> {};

TEST_P(BadConfigTest, GetsTheDocumentedMessage) {
  ConfigSources sources;
  sources.file = absl::StrCat(FERRY_BAD_CONFIGS, "/", GetParam(), ".yaml");
  std::ifstream stream(*sources.file);
  std::vector<std::string> expected;
  for (std::string line; std::getline(stream, line);) {
    constexpr absl::string_view kExpect = "# expect: ";
    if (absl::StartsWith(line, kExpect)) {
      expected.push_back(
          absl::StrReplaceAll(line.substr(kExpect.size()), {{"FILE", *sources.file}}));
    }
  }
  ASSERT_FALSE(expected.empty());
  const absl::StatusOr<Config> config = Load(sources);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(HasReason(config.status(), Reason::kConfigInvalid));
  EXPECT_EQ(Message(config), absl::StrJoin(expected, "\n"));
}

std::vector<std::string> BadConfigs() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(FERRY_BAD_CONFIGS)) {
    names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}
INSTANTIATE_TEST_SUITE_P(Files, BadConfigTest, testing::ValuesIn(BadConfigs()),
                         [](const auto& info) { return info.param; });

TEST(ConfigTest, WithoutAnySourceIsANodeOnItsOwn) {
  const absl::StatusOr<Config> config = Load({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.name, "testhost");
  EXPECT_EQ(config->node.runtime_dir, "/run/ferry");
  EXPECT_EQ(config->limits.session_bytes, uint64_t{64} << 30);
  EXPECT_EQ(config->transfer.deadline, absl::Seconds(60));
  EXPECT_THAT(config->OwnIds(0), ElementsAre(GlobalDeviceId(0), GlobalDeviceId(1)));
}

TEST(ConfigTest, AsksTheSystemForItsNameIfNobodySaysOne) {
  const absl::StatusOr<Config> config = LoadConfig({});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_FALSE(config->node.name.empty());
}

constexpr char kFull[] = R"(
node: { name: node-b, runtime_dir: /run/ferry/b }
sockets: { client: { owner: root, group: "17", mode: 0620 }, admin: { owner: 0, group: root, mode: "600" } }
devices: { host: 3, nvrtc_library: /opt/libnvrtc.so.13, cublaslt_library: none, kernel_cache: /var/cache/ferry, packaged_kernels: none, ids: { base: 40 } }
membership:
  provider: static
  nodes:
    - { name: node-a, address: "10.0.0.1:7411", ids: [0, 1] }
    - { name: node-b, address: "[fd00::2]:7411", ids: [2, 3, 9] }
peer: { listen: "[::]:7411", insecure: true, secret_file: /etc/ferry/secret, uids: [1000, 1001] }
limits:
  session_bytes: 256MiB
  session_arenas: 7
  transfers_in_flight: 8
  session_failures: 9
  sessions: 10
  sessions_per_uid: 11
  connections_per_uid: 12
  connects_per_second: 14
  rpc_bytes_per_uid: 15MiB
  offers_per_peer: 13
  session_kept_bytes: 14MiB
  uid_kept_bytes: 15MiB
  peer_kept_bytes: 16MiB
transfer:
  order: [ucx, nccl, local]
  choose: order
  deadline: 1500ms
  staging: 16MiB
  tcp: { connections: 4 }
  ucx: { library: /opt/ucx/libucp.so.0, shm_tls: "posix", net_tls: tcp, open_to: us, net_devices: "eth0,\"odd\"", direct: false }
  nccl: { library: /opt/libnccl.so.2, max_ctas: 0, idle: 1m, group_time: 3ms, environment: { NCCL_IB_HCA: "a,b" } }
metrics: { listen: "0.0.0.0:9100", insecure: true }
log: { level: debug, format: json }
drain: { timeout: 2m }
)";

void ExpectFull(const Config& config) {
  EXPECT_EQ(config.node.name, "node-b");
  EXPECT_EQ(config.node.runtime_dir, "/run/ferry/b");
  EXPECT_EQ(config.sockets.client.owner, "root");
  EXPECT_EQ(config.sockets.client.group, "17");
  EXPECT_EQ(config.sockets.client.mode, "0620");
  EXPECT_EQ(config.sockets.admin.owner, "0");
  EXPECT_EQ(config.sockets.admin.group, "root");
  EXPECT_EQ(config.sockets.admin.mode, "600");
  EXPECT_EQ(config.devices.host, 3u);
  EXPECT_EQ(config.devices.nvrtc_library, "/opt/libnvrtc.so.13");
  EXPECT_EQ(config.devices.cublaslt_library, "none");
  EXPECT_EQ(config.devices.kernel_cache, "/var/cache/ferry");
  EXPECT_EQ(config.devices.packaged_kernels, "none");
  EXPECT_EQ(config.devices.base_id, 40u);
  EXPECT_EQ(config.membership.provider, "static");
  EXPECT_THAT(
      config.membership.nodes,
      ElementsAre(Config::Node{"node-a", "10.0.0.1:7411", {GlobalDeviceId(0), GlobalDeviceId(1)}},
                  Config::Node{"node-b",
                               "[fd00::2]:7411",
                               {GlobalDeviceId(2), GlobalDeviceId(3), GlobalDeviceId(9)}}));
  EXPECT_THAT(config.OwnIds(0),
              ElementsAre(GlobalDeviceId(2), GlobalDeviceId(3), GlobalDeviceId(9)));
  EXPECT_EQ(config.peer.listen, "[::]:7411");
  EXPECT_TRUE(config.peer.insecure);
  EXPECT_EQ(config.peer.secret_file, "/etc/ferry/secret");
  EXPECT_THAT(config.peer.uids, ElementsAre(1000, 1001));
  EXPECT_EQ(config.limits.session_bytes, 256u << 20);
  EXPECT_EQ(config.limits.session_arenas, 7u);
  EXPECT_EQ(config.limits.transfers_in_flight, 8u);
  EXPECT_EQ(config.limits.session_failures, 9u);
  EXPECT_EQ(config.limits.sessions, 10u);
  EXPECT_EQ(config.limits.sessions_per_uid, 11u);
  EXPECT_EQ(config.limits.connections_per_uid, 12u);
  EXPECT_EQ(config.limits.connects_per_second, 14u);
  EXPECT_EQ(config.limits.rpc_bytes_per_uid, 15u << 20);
  EXPECT_EQ(config.limits.offers_per_peer, 13u);
  EXPECT_EQ(config.limits.session_kept_bytes, uint64_t{14} << 20);
  EXPECT_EQ(config.limits.uid_kept_bytes, uint64_t{15} << 20);
  EXPECT_EQ(config.limits.peer_kept_bytes, uint64_t{16} << 20);
  EXPECT_THAT(config.transfer.order, ElementsAre(Route::kUcx, Route::kNccl, Route::kLocal));
  EXPECT_EQ(config.transfer.choose, RouteChoosing::kOrder);
  EXPECT_EQ(config.transfer.deadline, absl::Milliseconds(1500));
  EXPECT_EQ(config.transfer.tcp.connections, 4u);
  EXPECT_EQ(config.transfer.ucx.shm_tls, "posix");
  EXPECT_EQ(config.transfer.ucx.open_to, "us");
  EXPECT_EQ(config.transfer.ucx.net_tls, "tcp");
  EXPECT_EQ(config.transfer.nccl.library, "/opt/libnccl.so.2");
  EXPECT_EQ(config.transfer.nccl.max_ctas, 0u);
  EXPECT_EQ(config.transfer.nccl.idle, absl::Minutes(1));
  EXPECT_EQ(config.transfer.nccl.group_time, absl::Milliseconds(3));
  EXPECT_THAT(config.transfer.nccl.environment, ElementsAre(testing::Pair("NCCL_IB_HCA", "a,b")));
  EXPECT_EQ(config.transfer.ucx.net_devices, "eth0,\"odd\"");
  EXPECT_EQ(config.transfer.ucx.library, "/opt/ucx/libucp.so.0");
  EXPECT_EQ(config.transfer.ucx.direct, UcxDirect::kOff);
  EXPECT_EQ(config.transfer.staging, uint64_t{16} << 20);
  EXPECT_EQ(config.metrics.listen, "0.0.0.0:9100");
  EXPECT_TRUE(config.metrics.insecure);
  EXPECT_EQ(config.log.level, "debug");
  EXPECT_EQ(config.log.format, LogFormat::kJson);
  EXPECT_EQ(config.drain.timeout, absl::Minutes(2));
}

TEST(ConfigTest, ReadsEverySetting) {
  const absl::StatusOr<Config> config = LoadText(kFull);
  ASSERT_TRUE(config.ok()) << config.status();
  ExpectFull(*config);
}

TEST(ConfigTest, PrintsWhatItReadsBack) {
  const absl::StatusOr<Config> config = LoadText(kFull);
  ASSERT_TRUE(config.ok()) << config.status();
  const std::string printed = PrintConfig(*config);
  const absl::StatusOr<Config> again = LoadText(printed);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << printed;
  ExpectFull(*again);
  EXPECT_EQ(PrintConfig(*again), printed);
}

TEST(ConfigTest, TheThreadsOfJobsAreBounded) {
  EXPECT_EQ(Load({})->limits.job_threads, 0u) << "by the cores there are";
  EXPECT_EQ(LoadText("limits: { job_threads: 12 }\n")->limits.job_threads, 12u);
  EXPECT_FALSE(LoadText("limits: { job_threads: 1025 }\n").ok());
}

TEST(ConfigTest, LaunchesOfJobsAreBounded) {
  EXPECT_EQ(Load({})->limits.launch_flops, uint64_t{1} << 34);
  EXPECT_EQ(LoadText("limits: { launch_flops: 1048576 }\n")->limits.launch_flops, 1048576u);
  EXPECT_FALSE(LoadText("limits: { launch_flops: 1 }\n").ok());
  EXPECT_EQ(Load({})->limits.gpu_launch_flops, uint64_t{1} << 41);
  EXPECT_EQ(LoadText("limits: { gpu_launch_flops: 1048576 }\n")->limits.gpu_launch_flops, 1048576u);
  EXPECT_FALSE(LoadText("limits: { gpu_launch_flops: 1 }\n").ok());
}

TEST(ConfigTest, AUsersShareOfGpusIsMillisecondsOfEachSecond) {
  EXPECT_EQ(Load({})->limits.gpu_ms_per_second, 1000u) << "no limit";
  EXPECT_EQ(LoadText("limits: { gpu_ms_per_second: 250 }\n")->limits.gpu_ms_per_second, 250u);
  EXPECT_FALSE(LoadText("limits: { gpu_ms_per_second: 0 }\n").ok());
  EXPECT_FALSE(LoadText("limits: { gpu_ms_per_second: 1001 }\n").ok());
}

TEST(ConfigTest, PrintsTheDefaultsAsAValidFile) {
  const std::string printed = PrintConfig(*Load({}));
  EXPECT_THAT(printed, HasSubstr("limits:\n  session_bytes: 64 GiB\n  session_arenas: 4096\n"));
  EXPECT_THAT(printed, HasSubstr("transfer:\n  order: [local, mapped, ucx, tcp, nccl]\n"));
  const absl::StatusOr<Config> again = LoadText(printed);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << printed;
  EXPECT_EQ(PrintConfig(*again), printed);
}

TEST(ConfigTest, MembershipSaysHowManyDevicesThereAre) {
  const absl::StatusOr<Config> config =
      LoadText("node: { name: a }\nmembership: { nodes: [ { name: a, ids: [5, 6, 8, 9] } ] }\n");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->devices.host, 4u);
}

TEST(ConfigTest, AnEmptyFileIsAllDefaults) {
  for (const char* text : {"", "# nothing\n", "limits:\n", "{}"}) {
    const absl::StatusOr<Config> config = LoadText(text);
    ASSERT_TRUE(config.ok()) << "'" << text << "': " << config.status();
    EXPECT_EQ(config->limits.sessions, 1024u);
  }
}

TEST(ConfigTest, FlagOverEnvironmentOverDropInOverFile) {
  Directory directory;
  ConfigSources sources;
  sources.file = directory.Write("ferryd.yaml",
                                 "limits: { sessions: 1, session_arenas: 1, sessions_per_uid: 1 }\n"
                                 "log: { level: trace }\n");
  directory.Write("ferryd.yaml.d/10.yaml",
                  "limits: { sessions: 2, session_arenas: 2, sessions_per_uid: 2 }\n");
  sources.environment = {{"FERRY_LIMITS__SESSIONS", "3"},
                         {"FERRY_LIMITS__SESSION_ARENAS", "3"},
                         {"FERRY_ADMIN_SOCKET", "somebody else's"},
                         {"PATH", "/bin"}};
  sources.overrides = {{"limits.sessions", "4", "--sessions"}};
  const absl::StatusOr<Config> config = Load(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->limits.sessions, 4u);
  EXPECT_EQ(config->limits.session_arenas, 3u);
  EXPECT_EQ(config->limits.sessions_per_uid, 2u);
  EXPECT_EQ(config->log.level, "trace");
}

TEST(ConfigTest, TwoSettingsHaveShortNamesInTheEnvironment) {
  ConfigSources sources;
  sources.environment = {{"FERRY_RUNTIME_DIR", "/tmp/short"}, {"FERRY_LOG_LEVEL", "debug"}};
  const absl::StatusOr<Config> config = Load(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->node.runtime_dir, "/tmp/short");
  EXPECT_EQ(config->log.level, "debug");
  sources.environment["FERRY_LOG_LEVEL"] = "loud";
  EXPECT_THAT(Load(sources).status().message(), HasSubstr("environment FERRY_LOG_LEVEL"));
}

TEST(ConfigTest, DropInsMergeMapsAndReplaceLists) {
  Directory directory;
  ConfigSources sources;
  sources.file =
      directory.Write("ferryd.yaml", "transfer: { order: [local, mapped, ucx], deadline: 5s }\n");
  directory.Write("conf.d/20-b.yaml", "transfer: { order: [ucx] }\n");
  directory.Write("conf.d/10-a.yaml", "transfer: { order: [mapped], ucx: { net_tls: rc } }\n");
  directory.Write("conf.d/30-c.txt", "this is not read\n");
  directory.Write("ferryd.yaml.d/00.yaml", "log: { format: json }\n");
  const absl::StatusOr<Config> config = Load(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->transfer.order, ElementsAre(Route::kUcx));
  EXPECT_EQ(config->transfer.deadline, absl::Seconds(5));
  EXPECT_EQ(config->transfer.ucx.net_tls, "rc");
  EXPECT_EQ(config->log.format, LogFormat::kJson);
}

TEST(ConfigTest, AProblemOfADropInNamesTheDropIn) {
  Directory directory;
  ConfigSources sources;
  sources.file = directory.Write("ferryd.yaml", "log: { level: info }\n");
  const std::string drop_in = directory.Write("conf.d/1.yaml", "log:\n  lvl: debug\n");
  EXPECT_EQ(Message(Load(sources)),
            absl::StrCat(drop_in, ":2:3: log.lvl: unknown key; did you mean log.level?"));
}

TEST(ConfigTest, TextsOfFlagsAndEnvironmentAreListsAndPlainTexts) {
  ConfigSources sources;
  sources.overrides = {
      {"transfer.order", "ucx,local", "--order"},
      {"transfer.nccl.environment", "NCCL_DEBUG=WARN,NCCL_IB_HCA=mlx5", "--nccl"},
      {"peer.uids", "[7, 8]", "--peer-uids"},
      {"peer.listen", "[::1]:7411", "--listen"},
      {"membership.nodes", "[{name: testhost, ids: [1, 2]}]", "--nodes"},
  };
  const absl::StatusOr<Config> config = Load(sources);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(config->transfer.order, ElementsAre(Route::kUcx, Route::kLocal));
  EXPECT_THAT(config->transfer.nccl.environment, ElementsAre(testing::Pair("NCCL_DEBUG", "WARN"),
                                                             testing::Pair("NCCL_IB_HCA", "mlx5")));
  EXPECT_THAT(config->peer.uids, ElementsAre(7, 8));
  EXPECT_EQ(config->peer.listen, "[::1]:7411");
  EXPECT_THAT(config->OwnIds(0), ElementsAre(GlobalDeviceId(1), GlobalDeviceId(2)));
}

TEST(ConfigTest, ProblemsOfFlagsAndEnvironmentNameThem) {
  ConfigSources sources;
  sources.environment = {{"FERRY_NODE__NAM", "x"},
                         {"FERRY_NODE__", "x"},
                         {"FERRY_PEER__UIDS", "[1"},
                         {"FERRY_TRANSFER__UCX", "x"}};
  sources.overrides = {{"log.level", "loud", "--log-level"}};
  const std::string message = Message(Load(sources));
  EXPECT_THAT(
      message,
      HasSubstr("environment FERRY_NODE__NAM: node.nam: unknown key; did you mean node.name?"));
  EXPECT_THAT(message, HasSubstr("environment FERRY_NODE__: node.: unknown key; known here: name, "
                                 "runtime_dir"));
  EXPECT_THAT(message, HasSubstr("environment FERRY_PEER__UIDS: peer.uids: is not YAML: "));
  EXPECT_THAT(message,
              HasSubstr("environment FERRY_TRANSFER__UCX: transfer.ucx: is a section; known "
                        "here: direct, library, net_devices, net_tls, open_to, shm_tls"));
  EXPECT_THAT(message, HasSubstr("--log-level: log.level: 'loud' is not one of"));
}

TEST(ConfigTest, AFlagMendsWhatTheFileGetsWrongOnlyIfTheFileIsSound) {
  Directory directory;
  ConfigSources sources;
  sources.file = directory.Write("ferryd.yaml", "log: { level: loud }\n");
  sources.overrides = {{"log.level", "info", "--log-level"}};
  EXPECT_THAT(Message(Load(sources)), HasSubstr("'loud' is not one of"));
}

TEST(ConfigTest, FilesThatCannotBeReadSayWhy) {
  Directory directory;
  ConfigSources sources;
  sources.file = (directory.path() / "missing.yaml").string();
  EXPECT_EQ(Message(Load(sources)),
            absl::StrCat(*sources.file, ": cannot be read: No such file or directory"));
  sources.file = directory.path().string();
  EXPECT_EQ(Message(Load(sources)),
            absl::StrCat(*sources.file, ": cannot be read: is a directory"));
  sources.file = directory.Write("large.yaml", std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(Message(Load(sources)), absl::StrCat(*sources.file, ": is larger than 1 MiB"));
}

TEST(ConfigTest, TheLongestRuntimeDirThatFitsIsAccepted) {
  ConfigSources sources;
  const std::string fits = "/" + std::string(107 - 1 - strlen("/client/attach.sock"), 'd');
  sources.overrides = {{"node.runtime_dir", fits, "--runtime-dir"}};
  EXPECT_TRUE(Load(sources).ok());
  sources.overrides[0].value += "d";
  EXPECT_FALSE(Load(sources).ok());
}

}  // namespace
}  // namespace ferry
