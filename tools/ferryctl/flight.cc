// SPDX-License-Identifier: Apache-2.0
// ferryctl flight: dumps what a node knows of its transfers, compares two such dumps, and makes a
// trace of several.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/file_io.h"
#include "tools/ferryctl/flight_diff.h"
#include "tools/ferryctl/flight_trace.h"
#include "tools/ferryctl/globals.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

namespace admin = ferry::admin::v1;

absl::StatusOr<Flight> ReadFlight(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadToEnd(path));
  Flight flight;
  RETURN_IF_ERROR(FromMessageJson(text, &flight, absl::StrCat("read the flight dump ", path)));
  if (flight.node().empty()) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 absl::StrCat("read the flight dump ", path,
                              ": it names no node; make one with `ferryctl flight dump`"));
  }
  return flight;
}

class FlightCommand : public Command {
 public:
  FlightCommand()
      : Command("flight",
                "Why a transfer does not finish, or takes long: dump nodes, compare, trace") {}

  void Define(CLI::App& app) override {
    app.require_subcommand(1);
    CLI::App* dump = app.add_subcommand(
        "dump", "What the node knows of its transfers, as JSON; for `flight diff`");
    dump->add_option("-o,--output", output_, "Into this file instead of standard output");
    dump->add_flag("--trace", trace_, "As `flight trace` of this node alone");
    dump->callback([this] { action_ = &FlightCommand::Dump; });
    CLI::App* diff = app.add_subcommand(
        "diff", "Which side of which transfer lacks what; exit status 8 if any does");
    diff->add_option("first", first_, "A dump of one node")->required();
    diff->add_option("second", second_, "A dump of the other, taken soon after")->required();
    diff->add_option("--limit", limit_, "Show at most so many of each kind")
        ->check(AtLeast<size_t>(1));
    diff->callback([this] { action_ = &FlightCommand::Diff; });
    CLI::App* trace = app.add_subcommand("trace",
                                         "Chrome trace JSON of the dumps of one or several nodes, "
                                         "on one clock, for ui.perfetto.dev");
    trace->add_option("dumps", dumps_, "One of each node")->required();
    trace->add_option("-o,--output", output_, "Into this file instead of standard output");
    trace->callback([this] { action_ = &FlightCommand::WriteTrace; });
    for (CLI::App* sub : {dump, diff, trace}) sub->fallthrough();
  }

  absl::StatusOr<int> Run(const Globals& globals) override { return (this->*action_)(globals); }

 private:
  absl::StatusOr<int> Dump(const Globals& globals) {
    ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
    Flight whole;
    RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
      auto reader = stub.GetFlight(context, admin::GetFlightRequest());
      Flight piece;
      while (reader->Read(&piece)) whole.MergeFrom(piece);
      return reader->Finish();
    }));
    return Write(trace_ ? FlightTrace({whole}) : MessageJson(whole));
  }

  absl::StatusOr<int> WriteTrace(const Globals&) {
    std::vector<Flight> flights;
    for (const std::string& path : dumps_) {
      ASSIGN_OR_RETURN(Flight flight, ReadFlight(path));
      for (const Flight& other : flights) {
        if (other.node() != flight.node()) continue;
        return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                     absl::StrCat("trace ", path, ": there is another dump of ", flight.node(),
                                  " before it; one of each node is needed"));
      }
      flights.push_back(std::move(flight));
    }
    return Write(FlightTrace(flights));
  }

  // To the output file, or to standard output.
  absl::StatusOr<int> Write(const std::string& json) const {
    const std::string text = absl::StrCat(json, "\n");
    if (output_.empty()) {
      std::fwrite(text.data(), 1, text.size(), stdout);
      return kExitOk;
    }
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(output_));
    RETURN_IF_ERROR(file.Write(0, text.data(), text.size()));
    RETURN_IF_ERROR(file.Commit());
    return kExitOk;
  }

  absl::StatusOr<int> Diff(const Globals& globals) {
    ASSIGN_OR_RETURN(const Flight first, ReadFlight(first_));
    ASSIGN_OR_RETURN(const Flight second, ReadFlight(second_));
    if (first.node() == second.node()) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat("compare ", first_, " and ", second_, ": both are of ",
                                first.node(), "; one of each node is needed"));
    }
    const FlightDiff diff = CompareFlights(first, second);
    const std::string text =
        globals.json ? absl::StrCat(FlightDiffJson(diff), "\n") : FlightDiffText(diff, limit_);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return diff.lacks.empty() ? kExitOk : kExitUnhealthy;
  }

  absl::StatusOr<int> (FlightCommand::*action_)(const Globals&) = &FlightCommand::Dump;
  bool trace_ = false;
  std::vector<std::string> dumps_;
  std::string output_;
  std::string first_;
  std::string second_;
  size_t limit_ = 20;
};

}  // namespace

void AddFlightCommand(CommandList& commands) {
  commands.push_back(std::make_unique<FlightCommand>());
}

}  // namespace ferry::tools
