// SPDX-License-Identifier: Apache-2.0
// ferryctl bench: a quick look at one route between two running daemons (bench/ has the full
// tables).
#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/duration.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/bench_pair.h"
#include "tools/ferryctl/bench_receiver.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/host_copy.h"
#include "tools/ferryctl/options.h"
#include "tools/ferryctl/statistics.h"

namespace ferry::tools {
namespace {

struct BenchCase {
  const char* name;
  uint64_t size;
  uint64_t count;
  uint64_t iterations;
};
constexpr BenchCase kCases[] = {
    {"latency", 8, 1, 2000},
    {"bandwidth", uint64_t{256} << 20, 1, 7},
    {"many-small", uint64_t{64} << 10, 1000, 7},
    {"rate", uint64_t{4} << 10, 100'000, 3},
    {"memcpy", uint64_t{256} << 20, 1, 7},
};
constexpr uint64_t kRateBatch = 1024;
constexpr uint64_t kRateWindow = 4;

class BenchCommand : public Command {
 public:
  BenchCommand() : Command("bench", "Measure transfers between two daemons (or within one)") {}
  void Define(CLI::App& app) override {
    app.add_option("case", case_, "latency, bandwidth, many-small, rate; memcpy needs no daemon")
        ->required()
        ->check(OneOf({"latency", "bandwidth", "many-small", "rate", "memcpy"}));
    app.add_option("--peer-runtime-dir", peer_, "The receiver's daemon (the same)")
        ->check(CheckRuntimeDir);
    app.add_option("--from", from_, "Source device (the first of this daemon)")
        ->check(IdFrom<int64_t>("ferryctl devices"));
    app.add_option("--to", to_, "Destination device (the first of the peer, the last of the same)")
        ->check(IdFrom<int64_t>("ferryctl devices"));
    AddParsed(app, "--route", route_, ParseRoute, "Insist on local, mapped, tcp, ucx or nccl");
    AddParsed(app, "--size", size_, ParseSize, "Of one buffer");
    app.add_option("--count", count_, "Buffers at once")->check(AtLeast<uint64_t>(1));
    app.add_option("--iterations", iterations_, "Measurements")->check(AtLeast<uint64_t>(1));
    app.add_flag("--prepared", prepared_, "Prepare once and fire; rate: batches of 1,024");
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    BenchCase chosen = kCases[0];
    for (const BenchCase& known : kCases) {
      if (case_ == known.name) chosen = known;
    }
    if (size_.has_value()) chosen.size = *size_;
    if (count_ > 0) chosen.count = count_;
    if (iterations_ > 0) chosen.iterations = iterations_;

    // The size of the largest arena that a case makes.
    const uint64_t buffers = case_ == "rate" ? std::max(chosen.count, kRateBatch * kRateWindow)
                                             : std::max<uint64_t>(chosen.count, 2);
    if (chosen.size > std::numeric_limits<int64_t>::max() / buffers) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat("bench ", case_, ": ", buffers, " buffers of ", chosen.size,
                                " bytes are more than 2^63 bytes; a smaller --size or --count"));
    }
    Measurement result;
    if (case_ == "memcpy") {
      ASSIGN_OR_RETURN(result, MeasureMemcpy(chosen));
    } else {
      ASSIGN_OR_RETURN(result, MeasureTransfers(chosen, globals));
    }
    Print(globals, chosen, result);
    return kExitOk;
  }

 private:
  struct Measurement {
    absl::Duration cold;  // with the destination's memory made and touched
    std::vector<absl::Duration> warm;
    std::string route;
  };

  static absl::StatusOr<Measurement> MeasureMemcpy(const BenchCase& c) {
    Measurement result;
    result.route = "memcpy";
    const size_t bytes = c.size * c.count;
    const Pages from(bytes);
    const Pages to(bytes);
    if (from.data() == nullptr || to.data() == nullptr) {
      return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                        absl::StrCat("bench memcpy: map ", bytes,
                                     " bytes twice (a smaller --size or --count needs less)"),
                        errno);
    }
    from.Fill();
    result.cold = TimeMemcpy(to.data(), from.data(), bytes);
    for (uint64_t i = 0; i < c.iterations; ++i) {
      // The comparison has its own contents.
      if (i + 1 == c.iterations) std::memset(to.data(), 0, bytes);
      result.warm.push_back(TimeMemcpy(to.data(), from.data(), bytes));
    }
    if (std::memcmp(to.data(), from.data(), bytes) != 0) {
      return Error(absl::StatusCode::kDataLoss, Reason::kInternal,
                   "bench memcpy: the bytes copied are not those that were there");
    }
    return result;
  }

  absl::StatusOr<Measurement> MeasureTransfers(const BenchCase& c, const Globals& globals) {
    BenchPairOptions options;
    options.receiver_command = {"/proc/self/exe", "bench-receiver"};
    options.client_dir = globals.ClientDir();
    options.peer_client_dir = peer_.empty() ? options.client_dir : peer_ + "/client";
    options.source = from_;
    options.destination = to_;
    options.route = route_;
    ASSIGN_OR_RETURN(BenchPair pair, BenchPair::Open(options));

    const bool rate = case_ == "rate";
    const uint64_t most = pair.limits().transfers_in_flight;
    if (!rate && c.count > most) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kQueueFull,
                   absl::StrCat("bench ", case_, ": --count ", c.count, " at once, and a session ",
                                "may have ", most, " transfers in flight ",
                                "(limits.transfers_in_flight); a smaller --count"));
    }
    if (prepared_) return MeasurePrepared(pair, c, rate ? kRateBatch : c.count);
    const uint64_t arena = rate ? c.size * kRateBatch * kRateWindow : c.size * c.count;
    const auto once = [&] {
      return rate ? pair.Stream(c.count, c.size, kRateBatch, kRateWindow)
                  : pair.Run(c.count, c.size);
    };
    Measurement result;
    ASSIGN_OR_RETURN(absl::Duration made, pair.MakeArenas(arena));
    ASSIGN_OR_RETURN(absl::Duration first, once());
    result.cold = made + first;
    ASSIGN_OR_RETURN(result.warm, pair.Repeat(c.iterations, once));
    result.route = pair.Route();
    return result;
  }

  // The same with `batch` transfers that are prepared at once. The first firing is cold. The rate:
  // as many firings in a row as make up the count.
  absl::StatusOr<Measurement> MeasurePrepared(BenchPair& pair, const BenchCase& c, uint64_t batch) {
    Measurement result;
    const bool ping = case_ == "latency" && batch == 1;
    ASSIGN_OR_RETURN(absl::Duration made, pair.MakeArenas(c.size * (ping ? 2 : batch)));
    if (ping) {  // without the orders that other cases need in between
      const int64_t start = MonotonicNanoseconds();
      RETURN_IF_ERROR(pair.PreparePing(c.size));
      result.cold = made + absl::Nanoseconds(MonotonicNanoseconds() - start);
      ASSIGN_OR_RETURN(result.warm, pair.Ping(c.iterations - 1));
      ASSIGN_OR_RETURN(result.warm.emplace_back(), pair.Check([&] { return pair.PingOnce(); }));
      result.route = pair.Route();
      return result;
    }
    const int64_t start = MonotonicNanoseconds();
    RETURN_IF_ERROR(pair.Prepare(batch, c.size));
    result.cold = made + absl::Nanoseconds(MonotonicNanoseconds() - start);
    const bool rate = case_ == "rate";
    const uint64_t firings = (c.count + batch - 1) / batch;
    ASSIGN_OR_RETURN(result.warm, pair.Repeat(c.iterations, [&] {
      return rate ? pair.FireMany(firings) : pair.Fire();
    }));
    for (absl::Duration& elapsed : result.warm) {
      // The bytes that were asked for, though the last firing may have moved more.
      if (rate) elapsed *= static_cast<double>(c.count) / static_cast<double>(firings * batch);
    }
    result.route = pair.Route();
    return result;
  }

  void Print(const Globals& globals, const BenchCase& c, const Measurement& result) const {
    const uint64_t bytes = c.size * c.count;
    const absl::Duration p50 = Median(result.warm);
    const absl::Duration p90 = Quantile(result.warm, 0.9);
    const absl::Duration p99 = Quantile(result.warm, 0.99);
    const double per_second = static_cast<double>(c.count) / absl::ToDoubleSeconds(p50);
    if (globals.json) {
      const nlohmann::ordered_json out = {
          {"case", c.name},
          {"route", result.route},
          {"size", c.size},
          {"count", c.count},
          {"iterations", result.warm.size()},
          {"cold_seconds", absl::ToDoubleSeconds(result.cold)},
          {"p50_seconds", absl::ToDoubleSeconds(p50)},
          {"p90_seconds", absl::ToDoubleSeconds(p90)},
          {"p99_seconds", absl::ToDoubleSeconds(p99)},
          {"cold_gb_per_second", GigabytesPerSecond(bytes, result.cold)},
          {"gb_per_second", GigabytesPerSecond(bytes, p50)},
          {"transfers_per_second", per_second}};
      std::printf("%s\n", out.dump().c_str());
      return;
    }
    constexpr auto kRight = Table::Align::kRight;
    Table table({{"CASE"},
                 {"ROUTE"},
                 {"SIZE", kRight},
                 {"COUNT", kRight},
                 {"COLD", kRight},
                 {"P50", kRight},
                 {"P90", kRight},
                 {"P99", kRight},
                 {"GB/s", kRight},
                 {"TRANSFERS/s", kRight}});
    table.AddRow({c.name, result.route, HumanSize(c.size), HumanCount(c.count),
                  DurationText(result.cold), DurationText(p50), DurationText(p90),
                  DurationText(p99), absl::StrFormat("%.2f", GigabytesPerSecond(bytes, p50)),
                  HumanCount(static_cast<uint64_t>(per_second))});
    std::printf("%s", table.ToString().c_str());
  }

  std::string case_;
  std::string peer_;
  int route_ = FERRY_ROUTE_ANY;
  std::optional<uint64_t> size_;
  int64_t from_ = -1;
  int64_t to_ = -1;
  uint64_t count_ = 0;
  uint64_t iterations_ = 0;
  bool prepared_ = false;
};

// The other end that `bench` starts; its orders come over fd 3.
class BenchReceiverCommand : public Command {
 public:
  BenchReceiverCommand() : Command("bench-receiver", "The receiving end of bench") {}
  bool hidden() const override { return true; }
  absl::StatusOr<int> Run(const Globals&) override { return RunBenchReceiver(3); }
};

}  // namespace

void AddBenchCommands(CommandList& commands) {
  commands.push_back(std::make_unique<BenchCommand>());
  commands.push_back(std::make_unique<BenchReceiverCommand>());
}

}  // namespace ferry::tools
