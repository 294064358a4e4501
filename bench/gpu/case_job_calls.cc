// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_job_calls.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/echo.h"
#include "ferry/program.hpp"
#include "tools/ferryctl/bench_pair.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kSmall = 64 << 10;
constexpr int kCalls = 2000;
constexpr double kMoreThanACall = 15;  // us, that a posted job may take more than a bare call

absl::Status FromFerry(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  return Error(absl::StatusCode::kInternal, Reason::kInternal, status.ToString());
}

// A session with a program whose one buffer, @x, has `bytes` bytes.
struct Client {
  Session session;
  Arena arena;
  Program program;

  static absl::StatusOr<Client> Open(const Nodes& nodes, const char* name, const std::string& text,
                                     uint64_t bytes) {
    SessionOptions options;
    options.client_dir = nodes.ClientDir(0);
    options.name = name;
    const auto device = static_cast<uint64_t>(nodes.Gpu(0, 0));
    Result<Session> session = Session::Open(options);
    if (!session.ok()) return FromFerry(session.status());
    Result<Arena> arena = session->CreateArena(device, bytes);
    if (!arena.ok()) return FromFerry(arena.status());
    Result<Program> program = Program::Compile(*session, device, text);
    if (!program.ok()) return FromFerry(program.status());
    return Client{*std::move(session), *std::move(arena), *std::move(program)};
  }
  // Over the memory number `index`, of `bytes` each.
  ProgramRun Run(uint64_t bytes, uint64_t index = 0) const {
    return program.Run({{"x", arena.Range(index * bytes, bytes)}});
  }
};

absl::Status AddPosted(const std::string& self, const Nodes& nodes, Report& report) {
  constexpr uint64_t kBytes = 16;
  std::string text = absl::StrCat("program 1\nbuffer @x read_write ", kBytes,
                                  " donated\n%v0 = input @x : f32[4]\n");
  for (int i = 1; i <= 10; ++i) absl::StrAppend(&text, "%v", i, " = add %v", i - 1, ", %v0\n");
  text += "store @x, %v10\n";
  ASSIGN_OR_RETURN(Client client, Client::Open(nodes, "bench-posted", text, 4096));
  ASSIGN_OR_RETURN(EchoClient echo, EchoClient::Start(self));
  std::vector<absl::Duration> posted, called;
  for (int i = 0; i < kCalls; ++i) {
    const int64_t start = tools::MonotonicNanoseconds();
    Result<Batch> batch =
        RunPrograms(client.session, static_cast<uint64_t>(nodes.Gpu(0, 0)), {client.Run(kBytes)});
    if (!batch.ok()) return FromFerry(batch.status());
    RETURN_IF_ERROR(FromFerry(batch->Wait(std::chrono::seconds(60))));
    posted.push_back(absl::Nanoseconds(tools::MonotonicNanoseconds() - start));
    ASSIGN_OR_RETURN(called.emplace_back(), echo.SmallCall());
  }
  Row row;
  row.name = "10 tiny ops, posted";
  row.unit = "us";
  row.warm = absl::ToDoubleMicroseconds(tools::Median(posted));
  row.peer = absl::StrCat("gRPC unary round trip, and ", kMoreThanACall, " us");
  row.peer_warm = absl::ToDoubleMicroseconds(tools::Median(called)) + kMoreThanACall;
  row.at_most = true;
  row.target = 1;
  report.Add(std::move(row));
  return absl::OkStatus();
}

// A session that has the GPU run its program without a pause, by a thread of its own.
class Filler {
 public:
  static absl::StatusOr<std::unique_ptr<Filler>> Start(const Nodes& nodes) {
    constexpr uint64_t kBytes = uint64_t{8192} * 8192 * 2;
    constexpr uint64_t kRuns = 8;  // of one firing
    const std::string text = absl::StrCat(
        "program 1\nbuffer @x read_write ", kBytes, " donated",
        "\n%h = input @x : bf16[8192,8192]\n%x = convert %h : f32[8192,8192]\n"
        "%m = reduce %x reduction=max dimensions=[1]\n"
        "%b = broadcast_in_dim %m dimensions=[0] : f32[8192,8192]\n%d = subtract %x, %b\n"
        "%e = exponential %d\n%y = convert %e : bf16[8192,8192]\nstore @x, %y\n");
    ASSIGN_OR_RETURN(Client client, Client::Open(nodes, "bench-filler", text, kRuns * kBytes));
    std::vector<ProgramRun> runs;
    for (uint64_t i = 0; i < kRuns; ++i) runs.push_back(client.Run(kBytes, i));
    Result<Prepared> prepared =
        PreparePrograms(client.session, static_cast<uint64_t>(nodes.Gpu(0, 0)), runs);
    if (!prepared.ok()) return FromFerry(prepared.status());
    RETURN_IF_ERROR(FromFerry(prepared->Fire()));
    RETURN_IF_ERROR(FromFerry(prepared->Wait(std::chrono::seconds(60))));
    return std::unique_ptr<Filler>(new Filler(std::move(client), *std::move(prepared)));
  }
  ~Filler() {
    ending_ = true;
    thread_.join();
  }
  // How often it has fired.
  int firings() const { return firings_; }

 private:
  Filler(Client client, Prepared prepared)
      : client_(std::move(client)), prepared_(std::move(prepared)) {
    thread_ = std::thread([this] {
      while (!ending_ && prepared_.Fire().ok() && prepared_.Wait(std::chrono::seconds(60)).ok()) {
        ++firings_;
      }
    });
  }
  Client client_;
  Prepared prepared_;
  std::atomic<bool> ending_ = false;
  std::atomic<int> firings_ = 0;
  std::thread thread_;
};

absl::StatusOr<double> P99(tools::BenchPair& pair) {
  std::vector<double> took;
  for (int i = 0; i < kCalls; ++i) {
    ASSIGN_OR_RETURN(const absl::Duration once, pair.Run(1, kSmall));
    took.push_back(absl::ToDoubleMicroseconds(once));
  }
  return tools::Quantile(std::move(took), 0.99);
}

absl::Status AddBesideJobs(const std::string& self, const Nodes& nodes, Report& report) {
  tools::BenchPairOptions options;
  options.receiver_command = {self, "bench-receiver"};
  options.client_dir = options.peer_client_dir = nodes.ClientDir(0);
  options.source = nodes.Gpu(0, 0);
  options.destination = nodes.Host(0);
  ASSIGN_OR_RETURN(tools::BenchPair pair, tools::BenchPair::Open(options));
  RETURN_IF_ERROR(pair.MakeArenas(kSmall).status());
  RETURN_IF_ERROR(P99(pair).status());
  ASSIGN_OR_RETURN(const double idle, P99(pair));
  Row row;
  {
    ASSIGN_OR_RETURN(const auto one, Filler::Start(nodes));
    ASSIGN_OR_RETURN(const auto other, Filler::Start(nodes));
    const int before = one->firings() + other->firings();
    ASSIGN_OR_RETURN(row.warm, P99(pair));
    if (one->firings() + other->firings() == before) {
      return Error(absl::StatusCode::kInternal, Reason::kInternal,
                   "the sessions that fill the GPU have stopped");
    }
    RETURN_IF_ERROR(pair.Check([&] { return pair.Run(1, kSmall); }).status());
  }
  row.name = "64 KiB to the host beside jobs of two sessions, p99";
  row.unit = "us";
  row.peer = "the same on an idle GPU";
  row.peer_warm = idle;
  row.at_most = true;
  row.target = 2;
  report.Add(std::move(row));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureJobCalls(const std::string& self, Nodes& nodes, Report& report) {
  RETURN_IF_ERROR(AddPosted(self, nodes, report));
  return AddBesideJobs(self, nodes, report);
}

}  // namespace ferry::bench
