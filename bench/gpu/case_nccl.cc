// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_nccl.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/cases.h"
#include "bench/echo.h"
#include "bench/gpu/nccl_copy.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kMany = 1000, kTiny = 10'000;
constexpr int kFirings = 4;                      // a round, as on the other routes
constexpr uint64_t kTogether = 100;              // in a group of NCCL's
constexpr uint64_t kShort = uint64_t{64} << 20;  // of a large one, by parts
constexpr char kNccl[] = "ncclSend, ncclRecv";
constexpr char kNcclInGroups[] = "ncclSend, ncclRecv in groups of 100";

struct Took {
  absl::Duration posted, prepared, nccl, nccl_by_parts;
  absl::Duration first;  // of those prepared: after all the others had their turn
  absl::Duration echo;   // an RPC as small as the post of a ping, or of as many descriptors
};

struct Case {
  bool ping = false;  // half a round trip of what is prepared
  uint64_t count = 1;
  uint64_t bytes = 8;
  int rounds = 5;
};

absl::StatusOr<Took> Measure(const Case& what, const GpuSettings& settings,
                             const testing::GpuDriver* driver, tools::BenchPair pair) {
  ASSIGN_OR_RETURN(EchoClient echo, EchoClient::Start(settings.self));
  ASSIGN_OR_RETURN(const NcclApi* const api, OwnNccl());
  const uint64_t all = what.count * what.bytes, part = std::min(what.bytes, kShort);
  NcclCopy raw(driver, api);
  RETURN_IF_ERROR(raw.Make(kRawCtas, all));
  RETURN_IF_ERROR(pair.MakeArenas(std::max<uint64_t>(all, 16)).status());
  RETURN_IF_ERROR(what.ping ? pair.PreparePing(what.bytes) : pair.Prepare(what.count, what.bytes));
  std::vector<absl::Duration> posted, prepared, first, nccl, by_parts, echoes;
  for (int round = 0; round < what.rounds + 2; ++round) {
    ASSIGN_OR_RETURN(const absl::Duration moved, pair.Run(what.count, what.bytes));
    std::vector<absl::Duration> fired;
    if (what.ping) {
      ASSIGN_OR_RETURN(fired, pair.Ping(1));
    } else {
      for (int i = 0; i < kFirings; ++i) {
        ASSIGN_OR_RETURN(fired.emplace_back(), pair.Fire());
      }
    }
    ASSIGN_OR_RETURN(const absl::Duration peer, raw.Copy(what.count, what.bytes, kTogether));
    ASSIGN_OR_RETURN(const absl::Duration parts,
                     raw.Copy(what.count * (what.bytes / part), part, 1));
    ASSIGN_OR_RETURN(
        const absl::Duration call,
        what.ping ? echo.SmallCall() : echo.Descriptors(what.count, what.bytes, kRateBatch));
    if (round < 2) continue;  // communicators and contexts wake up
    echoes.push_back(call);
    posted.push_back(moved);
    prepared.insert(prepared.end(), fired.begin(), fired.end());
    first.push_back(fired[0]);
    nccl.push_back(peer);
    by_parts.push_back(parts);
  }
  RETURN_IF_ERROR(pair.Check([&] { return pair.Run(what.count, what.bytes); }).status());
  RETURN_IF_ERROR(pair.Check([&] { return what.ping ? pair.PingOnce() : pair.Fire(); }).status());
  return Took{tools::Median(posted),   tools::Median(prepared), tools::Median(nccl),
              tools::Median(by_parts), tools::Median(first),    tools::Median(echoes)};
}

void Add(Report& report, std::string name, const char* unit, double ours, bool at_most,
         std::optional<double> target, const char* peer = "", std::optional<double> theirs = {}) {
  Row row;
  row.name = absl::StrCat(name, " nccl");
  row.unit = unit;
  row.warm = ours;
  row.peer = peer;
  row.peer_warm = theirs;
  row.at_most = at_most;
  row.target = target;
  report.Add(std::move(row));
}

void AddLarge(uint64_t bytes, const Took& took, Report& report) {
  const auto rate = [&](absl::Duration time) { return tools::GigabytesPerSecond(bytes, time); };
  const std::string size = tools::HumanSize(bytes);
  Add(report, size + " prepared", "GB/s", rate(took.prepared), false, 0.97, kNccl, rate(took.nccl));
  Add(report, size + " posted", "GB/s", rate(took.posted), false, 0.97, kNccl, rate(took.nccl));
  Add(report, size + " posted", "GB/s", rate(took.posted), false, {}, "the same by 64 MiB",
      rate(took.nccl_by_parts));
}

void AddMany(uint64_t count, uint64_t bytes, const Took& took, const GpuPeers& peers,
             Report& report) {
  const std::string what = absl::StrCat(tools::HumanCount(count), " x ", tools::HumanSize(bytes));
  const double prepared = absl::ToDoubleMilliseconds(took.prepared);
  const double nccl = absl::ToDoubleMilliseconds(took.nccl);
  const bool many = count == kMany;
  Add(report, what + " prepared", "ms", prepared, true, many ? 0.5 : 0.6);
  Add(report, what + " prepared", "ms", prepared, true,
      many ? std::optional<double>(1.0 / 10) : std::nullopt, kNcclInGroups, nccl);
  if (many && peers.torch_exchange_many) {
    Add(report, what + " prepared", "ms", prepared, true, 1.0 / 30, "torch batch_isend_irecv",
        peers.torch_exchange_many);
  }
  if (many && peers.jax_many) {
    Add(report, what + " prepared", "ms", prepared, true, 1.0 / 60, "jax.device_put",
        peers.jax_many);
  }
  Add(report, what + " prepared, a round's first", "ms", absl::ToDoubleMilliseconds(took.first),
      true, {});
  const double posted = absl::ToDoubleMilliseconds(took.posted);
  Add(report, what + " posted", "ms", posted, true, {}, kNcclInGroups, nccl);
  Add(report, what + " posted", "ms", posted, true, many ? std::optional<double>(1) : std::nullopt,
      "prepared, and two echo RPCs of as many descriptors",
      prepared + 2 * absl::ToDoubleMilliseconds(took.echo));
}

}  // namespace

absl::Status MeasureBesideNccl(const GpuSettings& settings, const testing::GpuDriver* driver,
                               absl::string_view name,
                               const std::function<absl::StatusOr<tools::BenchPair>()>& open_pair,
                               Report& report) {
  const auto measure = [&](const Case& what) -> absl::StatusOr<Took> {
    ASSIGN_OR_RETURN(tools::BenchPair pair, open_pair());
    return Measure(what, settings, driver, std::move(pair));
  };
  if (name == "large") {
    ASSIGN_OR_RETURN(const Took took, measure({false, 1, settings.large, settings.rounds}));
    AddLarge(settings.large, took, report);
  } else if (name == "many") {
    for (const uint64_t count : {kMany, kTiny}) {
      const uint64_t bytes = count == kMany ? kSmall : 4 << 10;
      ASSIGN_OR_RETURN(const Took took, measure({false, count, bytes, settings.rounds}));
      AddMany(count, bytes, took, settings.peers, report);
    }
  } else if (name == "latency") {
    const int rounds = static_cast<int>(settings.pings) / 10;
    ASSIGN_OR_RETURN(const Took took, measure({true, 1, 8, rounds}));
    const double nccl = absl::ToDoubleMicroseconds(took.nccl);
    Add(report, "8 B prepared, p50", "us", absl::ToDoubleMicroseconds(took.prepared), true, 1.5,
        kNccl, nccl);
    const double posted = absl::ToDoubleMicroseconds(took.posted);
    Add(report, "8 B posted, p50", "us", posted, true, {}, kNccl, nccl);
    Add(report, "8 B posted, p50", "us", posted, true, 1, "1.5 of that and two gRPC round trips",
        1.5 * nccl + 2 * absl::ToDoubleMicroseconds(took.echo));
  }
  return absl::OkStatus();
}

}  // namespace ferry::bench
