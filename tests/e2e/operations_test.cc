// SPDX-License-Identifier: Apache-2.0
// What operators see and do: routes, dump, drain, health, reflection, metrics, start and
// configuration.
#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/security/credentials.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "tests/support/fixtures.h"
#include "tests/support/grpc_channel.h"
#include "tests/support/raw_socket.h"

namespace ferry::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class OperationsTest : public ClusterTest {
 protected:
  // A pair whose data is not there yet: it may end, but does not by itself. Receives are forgotten.
  static Batch PostUndefined(End& end) {
    Transfer later(1, "never", {});
    later.defined_at = Transfer::DefinedAt{0, 1};
    Must(end.session.Receive(1, {Transfer(0, "never", {})}));
    return Must(end.session.Send(0, {later}));
  }
};

TEST_F(OperationsTest, RoutesAreExplained) {
  Start();
  const auto chosen = [&](uint64_t from, uint64_t to) {
    return node(0).admin().Explain(from, to).chosen();
  };
  EXPECT_EQ(chosen(0, 1), v1::ROUTE_LOCAL);
  EXPECT_EQ(chosen(0, 0), v1::ROUTE_LOCAL);
  // Before anybody has wanted the link: asking opens it, from either end.
  EXPECT_EQ(chosen(0, 2), v1::ROUTE_MAPPED);
  EXPECT_EQ(node(1).admin().Explain(0, 2).chosen(), v1::ROUTE_MAPPED);
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "up");
  EXPECT_EQ(chosen(0, 2), v1::ROUTE_MAPPED);
  EXPECT_EQ(chosen(2, 0), v1::ROUTE_MAPPED);
  const admin::v1::ExplainRouteResponse all = node(0).admin().Explain(0, 2);
  ASSERT_EQ(all.options_size(), 5);  // in the configured order
  EXPECT_EQ(all.options(0).route(), v1::ROUTE_LOCAL);
  EXPECT_FALSE(all.options(0).available());
  EXPECT_FALSE(all.options(0).reason().empty());
  EXPECT_FALSE(all.options(2).available()) << "there is no RDMA adapter";
  EXPECT_TRUE(all.options(3).available()) << all.options(3).reason();
  EXPECT_THAT(Ferryctl("route 0 2"), HasSubstr("mapped"));
  Ferryctl("route 0 77", 3);
}

TEST_F(OperationsTest, RoutesAreExplainedByTheNodeThatIsDialledToo) {
  Start();
  EXPECT_EQ(node(1).admin().Explain(0, 2).chosen(), v1::ROUTE_MAPPED);
}

TEST_F(OperationsTest, NoRouteToANodeThatIsNotThere) {
  Start();
  node(1).Kill();
  EXPECT_THAT(Ferryctl("route 0 2", 8), HasSubstr("no link to node-b"));
  EXPECT_THAT(Ferryctl("route 2 3", 3), HasSubstr("they belong to node-b; ask there"));
}

TEST_F(OperationsTest, StatusSaysWhatRunsPrograms) {
  Start({.nodes = 1});
  EXPECT_THAT(Ferryctl("status"), ContainsRegex("programs +.*threads?, products by "));
}

TEST_F(OperationsTest, ANodeAloneSaysWhyThereIsNoUcx) {
  Start({.nodes = 1});
  EXPECT_THAT(node(0).admin().Status().ucx(), HasSubstr("alone"));
  EXPECT_EQ(node(0).admin().Explain(0, 1).chosen(), v1::ROUTE_LOCAL);
}

TEST_F(OperationsTest, ConfiguredOrderDecides) {
  ClusterOptions options;
  options.transfer = "order: [tcp, local, mapped]";
  Start(options);
  End source = OpenEnd(0, kMiB), destination = OpenEnd(1, kMiB);
  ExpectTransfer(source, destination, "k");
  EXPECT_EQ(node(0).admin().Explain(0, 2).chosen(), v1::ROUTE_TCP);
  EXPECT_THAT(HttpGet(node(1).runtime_dir() + "/admin/metrics.sock", "/metrics"),
              AllOf(HasSubstr("route=\"tcp\""),
                    ContainsRegex("ferry_peer_frames_total.road=.(socket|stream).. [1-9]")));
}

TEST_F(OperationsTest, SessionsSayWhatTheirArenasAreMadeOf) {
  Start();
  End end = OpenEnd(0, 4096, 0, "holder");
  const Arena second = Must(end.session.CreateArena(0, 8192));
  const int memfd = memfd_create("mine", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(memfd, 4096), 0);
  ASSERT_EQ(fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  const Arena own = Must(end.session.ImportArena(0, memfd, 4096));
  close(memfd);
  EXPECT_THAT(Ferryctl("sessions"), ContainsRegex("holder.*  2 memfd, 1 memfd imported"));
  const admin::v1::ListSessionsResponse listed = node(0).admin().Sessions();
  ASSERT_EQ(listed.sessions_size(), 1);
  ASSERT_EQ(listed.sessions(0).memory_size(), 2);
  EXPECT_EQ(listed.sessions(0).memory(0).bytes(), 4096u + 8192u);
  EXPECT_TRUE(listed.sessions(0).memory(1).imported());
}

TEST_F(OperationsTest, TheDumpIsStableAndWhole) {
  Start();
  End source = OpenEnd(0, 4096, 0, "dumped");
  Batch send = Must(source.session.Send(0, {Transfer(2, "waiting-key", {source.arena.All()})}));
  ASSERT_TRUE(nodes().AwaitLink(0, 1));
  const auto state = [&] {  // without the flight recorder and the ages
    std::string dump = node(0).admin().Dump();
    EXPECT_NE(dump.find("flight recorder"), std::string::npos);
    dump.erase(dump.find("flight recorder"));
    const size_t age = dump.find(" age ");
    EXPECT_NE(age, std::string::npos) << dump;
    return dump.erase(age + 5, dump.find(' ', age + 5) - age - 5);
  };
  const std::string first = state();
  EXPECT_EQ(first, state());
  for (const char* part : {"node node-a", "devices", "peers", "node-b", "sessions", "dumped",
                           "transfers 1", "waiting-key", "waits for"}) {
    EXPECT_THAT(first, HasSubstr(part));
  }
  EXPECT_THAT(Ferryctl("dump"), HasSubstr("waiting-key"));
  EXPECT_THAT(Ferryctl("transfers"), HasSubstr("waiting-key"));
  EXPECT_THAT(Ferryctl("sessions"), HasSubstr("dumped"));
  EXPECT_THAT(Ferryctl("devices"), HasSubstr("host0"));
  EXPECT_THAT(Ferryctl("status"), HasSubstr("node-b"));
  const std::string json = Ferryctl("--json status");
  EXPECT_THAT(json, HasSubstr("\"node\""));
  // One form of an incarnation: in the log, the dump, for people and for programs.
  const std::string incarnation =
      absl::StrCat(absl::Hex(node(0).admin().Status().incarnation(), absl::kZeroPad16));
  for (const std::string& place : {json, Ferryctl("status"), node(0).Log(), first}) {
    EXPECT_THAT(place, HasSubstr(incarnation));
  }
  EXPECT_THAT(send.Cancel(), IsOk());
}

TEST_F(OperationsTest, HealthIsToldByTheStandardProtocol) {
  Start({.nodes = 1});
  for (const char* service : {"", "startup", "readiness", "liveness"}) {
    EXPECT_EQ(node(0).admin().Health(service), "SERVING") << service;
  }
  EXPECT_THAT(Ferryctl("health"), HasSubstr("SERVING"));
  grpc::ClientContext context;
  SetDeadline(context);
  admin::v1::DrainResponse drained;
  EXPECT_TRUE(node(0).admin().stubs().admin->Drain(&context, {}, &drained).ok());
  EXPECT_EQ(node(0).admin().Health("readiness"), "NOT_SERVING");
  EXPECT_EQ(node(0).admin().Health("liveness"), "SERVING");
  Ferryctl("health --service readiness", 8);
  Ferryctl("undrain");
  EXPECT_EQ(node(0).admin().Health("readiness"), "SERVING");
  node(0).Stop();
  Ferryctl("health", 4);
}

TEST_F(OperationsTest, ReflectionListsTheServices) {
  Start({.nodes = 1});
  auto stub = ::grpc::reflection::v1::ServerReflection::NewStub(node(0).admin().stubs().channel);
  grpc::ClientContext context;
  SetDeadline(context);
  auto stream = stub->ServerReflectionInfo(&context);
  ::grpc::reflection::v1::ServerReflectionRequest request;
  request.set_list_services("");
  ASSERT_TRUE(stream->Write(request));
  ::grpc::reflection::v1::ServerReflectionResponse response;
  ASSERT_TRUE(stream->Read(&response));
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service())
    names.push_back(service.name());
  EXPECT_THAT(names,
              ::testing::IsSupersetOf({"ferry.admin.v1.AdminService", "grpc.health.v1.Health"}));
  EXPECT_THAT(names, Not(::testing::Contains("ferry.v1.TransferService")));  // served elsewhere
  request.set_file_containing_symbol("ferry.admin.v1.AdminService");
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_TRUE(response.has_file_descriptor_response());
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(OperationsTest, OnlyUnixSocketsServeReflection) {
  Start();
  const auto ask = [](const std::shared_ptr<grpc::Channel>& channel, const char* version) {
    grpc::ClientContext context;
    SetDeadline(context);
    const std::string name =
        absl::StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo");
    const grpc::internal::RpcMethod method(name.c_str(), grpc::internal::RpcMethod::NORMAL_RPC);
    ::grpc::reflection::v1::ServerReflectionRequest request;
    request.set_list_services("");
    ::grpc::reflection::v1::ServerReflectionResponse response;
    return grpc::internal::BlockingUnaryCall<::grpc::reflection::v1::ServerReflectionRequest,
                                             ::grpc::reflection::v1::ServerReflectionResponse>(
               channel.get(), method, &context, request, &response)
        .error_code();
  };
  for (const char* version : {"v1", "v1alpha"}) {  // Python's grpcio-reflection asks the latter
    EXPECT_EQ(ask(node(0).admin().stubs().channel, version), grpc::StatusCode::OK) << version;
  }
  const auto peer_port = grpc::CreateChannel(node(0).admin().Status().peers(0).address(),
                                             grpc::InsecureChannelCredentials());
  for (const char* version : {"v1", "v1alpha"}) {
    EXPECT_EQ(ask(peer_port, version), grpc::StatusCode::UNIMPLEMENTED) << version;
  }
}

TEST_F(OperationsTest, ScrapesThatNeverEndHoldNothing) {
  Start({.nodes = 1});
  const std::string path = node(0).runtime_dir() + "/admin/metrics.sock";
  const size_t fds = node(0).process().OpenFds();
  std::vector<std::unique_ptr<RawSocket>> half;
  for (int i = 0; i < 100; ++i) {
    half.push_back(std::make_unique<RawSocket>(path, SOCK_STREAM));
    ASSERT_TRUE(half.back()->Send("GET /metrics HTTP/1.1\r\n"));
  }
  EXPECT_THAT(HttpGet(path, "/metrics"), HasSubstr("ferry_sessions"));
  EXPECT_TRUE(half.front()->AwaitClosed());
  EXPECT_TRUE(Await([&] { return node(0).process().OpenFds() <= fds + 2 * 32; }));
  RawSocket post(path, SOCK_STREAM);
  ASSERT_TRUE(post.Send("POST /metrics HTTP/1.1\r\n\r\n"));
  const std::optional<RawSocket::Packet> refused = post.Receive();
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(refused->bytes, ::testing::StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(refused->bytes, HasSubstr("Allow: GET"));
}

TEST_F(OperationsTest, MetricsAreServed) {
  ReservedPort port;
  ClusterOptions options;
  options.more = absl::StrCat("metrics: { listen: \"127.0.0.1:", port.port(), "\" }\n");
  options.nodes = 1;
  Start(options);
  End one = OpenEnd(0, 4096), two = OpenEnd(0, 4096, 1);
  ExpectTransfer(one, two, "counted");
  const std::string page = HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics");
  for (const char* part :
       {"ferry_sessions 2", "ferry_transfers_inflight{state=\"waiting\"} 0",
        "ferry_buffer_bytes{kind=\"host\",device=\"0\"} 4096", "route=\"local\""}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  for (absl::string_view line : absl::StrSplit(page, '\n', absl::SkipEmpty())) {
    if (line[0] == '#') continue;
    double value;
    const size_t space = line.rfind(' ');  // a label, as the compiler's name, may have some too
    EXPECT_TRUE(space != line.npos && absl::SimpleAtod(line.substr(space + 1), &value)) << line;
  }
  EXPECT_EQ(HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/secrets"), "");
}

TEST_F(OperationsTest, PromtoolAcceptsTheMetrics) {
  Start();
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  ExpectTransfer(source, destination, "k");
  TemporaryDirectory directory;
  WriteFile(directory / "page", HttpGet(node(0).runtime_dir() + "/admin/metrics.sock", "/metrics"));
  const Finished checked = RunProgram(
      {"/bin/sh", "-c",
       absl::StrCat("PATH=$PATH:", SETUP_BIN, "; promtool check metrics < ", directory / "page")});
  EXPECT_EQ(checked.status, 0) << checked.output;
}

TEST_F(OperationsTest, ThousandsOfCallsOnOneConnection) {
  Start({.nodes = 1});
  const size_t fds = node(0).process().OpenFds();
  for (int i = 0; i < 10'000 && !HasFailure(); ++i)
    EXPECT_EQ(node(0).admin().Status().node(), "node-a") << i;
  EXPECT_LE(node(0).process().OpenFds(), fds + 1);
}

TEST_F(OperationsTest, SigtermLetsWhatIsInFlightFinish) {
  Start();
  End source = OpenEnd(0, 4096), destination = OpenEnd(1, 4096);
  Fill(source.arena, 0, 4096, 1);
  Transfer later(destination.device, "k", {source.arena.All()});
  later.defined_at = Transfer::DefinedAt{0, 1};
  Batch send = Must(source.session.Send(0, {later}));
  Batch receive = Receive(destination, source, "k", {destination.arena.All()});
  node(0).Signal(SIGTERM);
  ASSERT_TRUE(Await([&] { return node(0).admin().Status().draining(); }));
  // Nothing new, neither posts nor sessions; what is in flight goes on.
  EXPECT_THAT(source.session.Send(0, {Transfer(2, "new", {})}), Is("UNAVAILABLE/DRAINING"));
  SessionOptions options;
  options.client_dir = node(0).client_dir();
  const auto refused = Session::Open(options);
  EXPECT_THAT(refused, Is("UNAVAILABLE/DRAINING", HasSubstr("attach again when it serves")));
  EXPECT_EQ(refused.status().retry_after().count(), 0) << "nobody knows for how long it drains";
  EXPECT_FALSE(send.over());
  EXPECT_THAT(source.session.Define(0, 1), IsOk());
  EXPECT_THAT(receive.Wait(kSoon), IsOk());
  EXPECT_TRUE(Has(destination.arena, 0, 4096, 1));
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
  const Status sent = send.Wait(kSoon);  // it ended well, or the daemon's end was seen first
  EXPECT_THAT(NameOf(sent), ::testing::AnyOf("OK", "UNAVAILABLE/DAEMON_LOST"));
}

TEST_F(OperationsTest, ADrainsDeadlineEndsTheRest) {
  ClusterOptions options;
  options.nodes = 1;
  options.more = "drain: { timeout: 300ms }\n";
  Start(options);
  End end = OpenEnd(0, 4096);
  Batch send = PostUndefined(end);
  node(0).Signal(SIGTERM);
  EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/DRAINING"));
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
}

TEST_F(OperationsTest, ASecondSigtermStopsAtOnce) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  Batch send = PostUndefined(end);
  node(0).Signal(SIGTERM);
  ASSERT_TRUE(Await([&] { return node(0).admin().Status().draining(); }));
  node(0).Signal(SIGTERM);
  EXPECT_EQ(node(0).process().Wait(), std::optional<int>(0));
  EXPECT_FALSE(send.Wait(kSoon).ok());
}

TEST_F(OperationsTest, FerryctlDrainsAndUndrains) {
  Start({.nodes = 1});
  End end = OpenEnd(0, 4096);
  Batch send = PostUndefined(end);
  EXPECT_THAT(Ferryctl("drain --timeout 100ms", 6),
              HasSubstr("2 transfers did not end within 100 ms and had to be cut off"));
  EXPECT_THAT(send.Wait(kSoon), Is("UNAVAILABLE/DRAINING"));
  EXPECT_THAT(end.session.Send(0, {Transfer(1, "k", {})}), Is("UNAVAILABLE/DRAINING"));
  // Nothing is left, and what the last drain did is over.
  EXPECT_EQ(Ferryctl("drain --timeout 100ms"), "drained\n");
  Ferryctl("undrain");
  End other = OpenEnd(0, 4096, 1);
  ExpectTransfer(end, other, "again");
}

TEST_F(OperationsTest, ASecondDaemonOnTheSameRuntimeDirectoryIsRefused) {
  Start({.nodes = 1});
  End one = OpenEnd(0, 4096), two = OpenEnd(0, 4096, 1);
  WriteFile(node(0).runtime_dir() + ".second.yaml", "start: { lock_wait: 30ms }");
  const Finished second = RunProgram({FerrydProgram(), "--runtime-dir", node(0).runtime_dir(),
                                      "--config", node(0).runtime_dir() + ".second.yaml"});
  EXPECT_EQ(second.status, 75);
  EXPECT_THAT(second.output, HasSubstr("still holds"));
  EXPECT_THAT(second.output, HasSubstr("another daemon serves this runtime directory"));
  // The first one is not disturbed, and its sockets are where they were.
  ExpectTransfer(one, two, "still");
  End three = OpenEnd(0, 4096);
  ExpectTransfer(three, two, "and new ones");
  EXPECT_THAT(Ferryctl("health"), HasSubstr("SERVING"));
}

TEST_F(OperationsTest, ADaemonThatDiedLeavesNothingInTheWay) {
  Start({.nodes = 1});
  node(0).Kill();
  EXPECT_TRUE(std::filesystem::exists(node(0).client_dir() + "/attach.sock"));
  ASSERT_TRUE(node(0).Start());
  End one = OpenEnd(0, 4096), two = OpenEnd(0, 4096, 1);
  ExpectTransfer(one, two, "again");
}

TEST(StartTest, BadConfigurations) {
  TemporaryDirectory directory;
  WriteFile(directory / "bad.yaml", "node: { name: n }\nlimits: { session_bites: 1GiB }\n");
  const Finished checked =
      RunProgram({FerrydProgram(), "--config", directory / "bad.yaml", "--check-config"});
  EXPECT_EQ(checked.status, 78);
  EXPECT_THAT(checked.output, HasSubstr("bad.yaml:2:"));
  EXPECT_THAT(checked.output, HasSubstr("session_bites"));
  EXPECT_THAT(checked.output, HasSubstr("did you mean"));
  EXPECT_EQ(RunProgram({FerrydProgram(), "--config", directory / "bad.yaml"}).status, 78);
  EXPECT_EQ(
      RunProgram({FerrydProgram(), "--config", directory / "none.yaml", "--check-config"}).status,
      78);
  EXPECT_EQ(RunProgram({FerrydProgram(), "--no-such-flag"}).status, 2);
  EXPECT_EQ(RunProgram({FerrydProgram(), "--devices", "gpu:1"}).status, 2);
  WriteFile(directory / "good.yaml", "node: { name: n }\n");
  const Finished good =
      RunProgram({FerrydProgram(), "--config", directory / "good.yaml", "--check-config"});
  EXPECT_EQ(good.status, 0) << good.output;
  // What it prints is what it reads.
  const Finished printed =
      RunProgram({FerrydProgram(), "--config", directory / "good.yaml", "--print-config"});
  EXPECT_EQ(printed.status, 0);
  WriteFile(directory / "printed.yaml", printed.output);
  const Finished again =
      RunProgram({FerrydProgram(), "--config", directory / "printed.yaml", "--print-config"});
  EXPECT_EQ(again.status, 0);
  EXPECT_EQ(again.output, printed.output);
  // As this tree is a commit, or none.
  const std::string version = absl::StrReplaceAll(FERRY_VERSION, {{".", "\\."}});
  for (const char* program : {FerrydProgram(), FerryctlProgram()}) {
    EXPECT_THAT(RunProgram({program, "--version"}).output,
                ContainsRegex(absl::StrCat("^ferry(d|ctl) ", version,
                                           "( \\(commit [0-9a-f]{12}(, changed)?\\))?\n$")));
  }
}

TEST(StartTest, ARuntimeDirectoryThatCannotBeHad) {
  TemporaryDirectory directory;
  WriteFile(directory / "file", "");
  std::filesystem::create_directories(directory / "taken/lock");
  const auto refused = [&](const std::string& path) {
    const Finished started = RunProgram({FerrydProgram(), "--runtime-dir", path, "--gpus", "none"});
    EXPECT_EQ(started.status, 78);
    EXPECT_THAT(started.output,
                HasSubstr(absl::StrCat("; choose another node.runtime_dir (--runtime-dir), or give "
                                       "uid ",
                                       geteuid(), " the right to this one")));
    return started.output;
  };
  EXPECT_THAT(refused(directory / "file/ferry"),
              HasSubstr("open " + directory / "file" + ": it is no directory"));
  EXPECT_THAT(refused(directory / "taken"),
              HasSubstr("open " + directory / "taken/lock" + ": Is a directory"));
}

TEST(StartTest, ARuntimeDirectoryThatIsTooLongForSockets) {
  TemporaryDirectory directory;
  const std::string deep = directory / std::string(100, 'd');
  const Finished refused = RunProgram({FerrydProgram(), "--runtime-dir", deep});
  EXPECT_EQ(refused.status, 78);
  EXPECT_THAT(refused.output, HasSubstr("runtime_dir"));
  // The client's own check of such a path.
  SessionOptions options;
  options.client_dir = deep;
  EXPECT_THAT(Session::Open(options), Is("INVALID_ARGUMENT/FIELD_INVALID"));
}

TEST(StartTest, APortThatIsTaken) {
  Cluster cluster(ClusterOptions{});
  ASSERT_TRUE(cluster[0].Start());
  // The second node's configuration, but the first one's port.
  std::string config = ReadFile(cluster[1].config_file());
  const std::string first = ReadFile(cluster[0].config_file());
  const auto listen = [](const std::string& text) {
    const size_t at = text.find("peer: { listen: \"127.0.0.1:") + 27;
    return text.substr(at, text.find('"', at) - at);
  };
  const std::string mine = "peer: { listen: \"127.0.0.1:" + listen(config);
  config.replace(config.find(mine), mine.size(), "peer: { listen: \"127.0.0.1:" + listen(first));
  WriteFile(cluster[1].config_file(), config);
  const Finished refused = RunProgram({FerrydProgram(), "--config", cluster[1].config_file()});
  EXPECT_EQ(refused.status, 75) << "whoever has it may let go of it";
  EXPECT_THAT(refused.output, HasSubstr(listen(first)));
  cluster.ExpectCleanEnd();
}

TEST(StartTest, WithoutAConfigurationItIsOneNode) {
  TemporaryDirectory directory;
  SpawnOptions options;
  options.arguments = {FerrydProgram(), "--runtime-dir", directory / "run", "--devices", "host:3"};
  options.output = directory / "log";
  Process daemon(options);
  Admin admin(directory / "run/admin/admin.sock");
  ASSERT_TRUE(Await([&] { return admin.Health("readiness", 200) == "SERVING"; }))
      << ReadFile(options.output);
  EXPECT_EQ(admin.Devices().devices_size(), 3);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), std::optional<int>(0));
}

// Several daemons share a machine: same devices' numbers, nothing else in common.
TEST(StartTest, TwoClustersDoNotMeet) {
  Cluster one({.nodes = 1}), two({.nodes = 1});
  ASSERT_TRUE(one.Start() && two.Start());
  {
    Session a = one.Open(0), b = two.Open(0);
    Batch send = Must(a.Send(0, {Transfer(1, "k", {})}));
    PostOptions soon;
    soon.deadline = std::chrono::milliseconds(200);
    Batch receive = Must(b.Receive(1, {Transfer(0, "k", {})}, soon));
    EXPECT_THAT(receive.Wait(kSoon), Is("DEADLINE_EXCEEDED/WAITING_FOR_PEER"));
    EXPECT_FALSE(send.over());
  }
  one.ExpectCleanEnd();
  two.ExpectCleanEnd();
}

}  // namespace
}  // namespace ferry::testing
