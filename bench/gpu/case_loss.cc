// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/case_loss.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "bench/cases.h"
#include "bench/gpu/first_transfer.h"
#include "bench/gpu/peer_copy.h"
#include "bench/gpu/streams.h"
#include "tools/ferryctl/bench_end.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::bench {
namespace {

constexpr uint64_t kFirst = uint64_t{1} << 20;
constexpr int64_t kMostNs = int64_t{10} * 1'000'000'000;

class LossCase {
 public:
  LossCase(const GpuSettings& settings, const testing::GpuDriver& driver, const LossEnds& ends,
           Report& report)
      : settings_(settings), driver_(driver), ends_(ends), report_(report) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Killed());
    RETURN_IF_ERROR(Restarted("beside another", /*alone=*/false));
    RETURN_IF_ERROR(Restarted("alone", /*alone=*/true));
    std::vector<absl::Duration> went_on;
    for (int round = 0; round < settings_.rounds; ++round) {
      ASSIGN_OR_RETURN(went_on.emplace_back(),
                       KillUnderStreams(driver_, ends_.nodes, ends_.there, ends_.destination));
    }
    Add("daemon killed: streams that waited went on", went_on, 100);
    return absl::OkStatus();
  }

 private:
  void Add(const std::string& what, const std::vector<absl::Duration>& took,
           std::optional<double> target) {
    Row row;
    row.name = absl::StrCat(what, " ", tools::RouteText(ends_.route));
    row.unit = "ms";
    row.warm = absl::ToDoubleMilliseconds(tools::Median(took));
    row.at_most = true;
    row.target = target;
    report_.Add(std::move(row));
  }

  uint64_t Free() const { return driver_.FreeBytes(kDestinationGpu); }

  // Until NVML's figure stays as it is: what was killed is gone, with its memory.
  absl::Status Settle() const {
    constexpr int64_t kQuietNs = 300'000'000;
    const int64_t begin = tools::MonotonicNanoseconds();
    int64_t since = begin;
    uint64_t free = Free();
    for (int64_t now = begin; now - since < kQuietNs; now = tools::MonotonicNanoseconds()) {
      if (now - begin > kMostNs) {
        return Error(absl::StatusCode::kDeadlineExceeded, Reason::kInternal,
                     "the free memory of the GPU goes up and down for 10 s");
      }
      const uint64_t next = Free();
      if (std::exchange(free, next) != next) since = now;
    }
    return absl::OkStatus();
  }

  // A client is killed that has memory on the destination.
  absl::Status Killed() {
    const uint64_t held = settings_.large;
    std::vector<absl::Duration> told, freed;
    for (int round = 0; round < settings_.rounds + 1; ++round) {
      ASSIGN_OR_RETURN(tools::BenchPair pair, ends_.open_pair());
      RETURN_IF_ERROR(pair.MakeArenas(kFirst).status());
      RETURN_IF_ERROR(pair.Run(1, kFirst).status());
      const uint64_t before = Free();
      RETURN_IF_ERROR(pair.MakeArenas(held).status());
      RETURN_IF_ERROR(pair.Prepare(1, held));
      const int64_t killed = tools::MonotonicNanoseconds();
      ASSIGN_OR_RETURN(const absl::Duration until_told, pair.KillReceiver());
      for (uint64_t free = 0; free < before;) {
        if (tools::MonotonicNanoseconds() - killed > kMostNs) {
          return Error(absl::StatusCode::kInternal, Reason::kInternal,
                       "the memory of a killed client is not back after 10 s");
        }
        free = Free();
      }
      freed.push_back(absl::Nanoseconds(tools::MonotonicNanoseconds() - killed));
      told.push_back(until_told);
    }
    Add("client killed: error at its partner", told, 1000);
    Add(absl::StrCat("client killed: its ", tools::HumanSize(held), " free again, by the driver"),
        freed, 1000);
    return absl::OkStatus();
  }

  absl::StatusOr<tools::BenchEnd> Open(int node, uint64_t device, tools::PostTarget target) const {
    tools::SessionOptions session;
    session.client_dir = ends_.nodes.ClientDir(node);
    session.name = "bench-partner";
    ASSIGN_OR_RETURN(tools::BenchEnd end, tools::BenchEnd::Open(session, std::move(target),
                                                                static_cast<int64_t>(device)));
    end.set_patience(kOrderPatience);
    RETURN_IF_ERROR(end.MakeArena(kFirst, 0));
    return end;
  }

  // It starts again, and receives what its partner, who lives on, has sent already. Unless it is
  // `alone`, the daemon has a context on its GPU meanwhile, for another client.
  absl::Status Restarted(const std::string& who, bool alone) {
    std::optional<tools::BenchEnd> other;
    if (!alone) {
      ASSIGN_OR_RETURN(other, Open(ends_.there, ends_.destination, {}));
    }
    std::vector<FirstTransferTimes> rounds;
    for (int round = 0; round < settings_.rounds + 1; ++round) {
      FirstTransferOf of;
      of.client_dir = ends_.nodes.ClientDir(ends_.there);
      of.domain = absl::StrCat("loss-", getpid(), "-", alone, "-", round);
      of.device = ends_.destination;
      of.remote_device = ends_.source;
      of.bytes = kFirst;
      of.route = ends_.route;
      of.cuda_device = kDestinationGpu;
      tools::PostTarget target;
      target.end = tools::End::kSend;
      target.remote_device = ends_.destination;
      target.domain = of.domain;
      target.route = ends_.route;
      RETURN_IF_ERROR(Settle());
      ASSIGN_OR_RETURN(tools::BenchEnd partner, Open(0, ends_.source, std::move(target)));
      RETURN_IF_ERROR(partner.PostMany(kFirstKey, 1, kFirst));
      ASSIGN_OR_RETURN(const FirstTransfer client, FirstTransfer::Start(settings_.self, of));
      RETURN_IF_ERROR(partner.Await().status());
      if (round > 0) rounds.push_back(client.times());  // the link wakes up
    }
    const auto add = [&](const char* what, absl::Duration FirstTransferTimes::*step) {
      std::vector<absl::Duration> took;
      for (const FirstTransferTimes& times : rounds) took.push_back(times.*step);
      Add(absl::StrCat("of it, ", who, ": ", what), took, {});
    };
    std::vector<absl::Duration> all;
    for (const FirstTransferTimes& times : rounds) all.push_back(times.all());
    Add(absl::StrCat("a client's start to the end of its first transfer, ", who), all, 200);
    add("until its program runs", &FirstTransferTimes::process);
    add("a session", &FirstTransferTimes::session);
    add("cuInit", &FirstTransferTimes::init);
    add("a context of its own", &FirstTransferTimes::context);
    add("an arena, which the daemon allocates", &FirstTransferTimes::arena);
    add("the transfer", &FirstTransferTimes::transfer);
    add("one more arena, when all is there (not in it)", &FirstTransferTimes::another);
    return absl::OkStatus();
  }

  const GpuSettings& settings_;
  const testing::GpuDriver& driver_;
  const LossEnds& ends_;
  Report& report_;
};

}  // namespace

absl::Status MeasureGpuLoss(const GpuSettings& settings, const testing::GpuDriver& driver,
                            const LossEnds& ends, Report& report) {
  return LossCase(settings, driver, ends, report).Run();
}

}  // namespace ferry::bench
