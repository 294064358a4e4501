// SPDX-License-Identifier: Apache-2.0
// A file to a file by `ferryctl send` and `recv`, against what copies files otherwise. The best of
// all rounds is compared, since what else a machine does is only ever added to it.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "bench/cases.h"

namespace ferry::bench {
namespace {

struct Cost {
  absl::Duration wall = absl::InfiniteDuration();
  absl::Duration cpu = absl::InfiniteDuration();  // of all processes, user and system
  uint64_t memory = 0;                            // the most of any end, bytes

  void Best(const Cost& other) {
    wall = std::min(wall, other.wall);
    cpu = std::min(cpu, other.cpu);
    memory = std::max(memory, other.memory);
  }
};

// All of `commands` at once, until the last has ended.
absl::StatusOr<Cost> Run(const Nodes& nodes,
                         const std::vector<std::vector<std::string>>& commands) {
  ASSIGN_OR_RETURN(const absl::Duration before, nodes.Cpu());
  const absl::Time start = absl::Now();
  std::vector<tools::ChildProcess> children;
  for (const auto& command : commands) {
    tools::SpawnOptions spawn;
    spawn.arguments = command;
    ASSIGN_OR_RETURN(tools::ChildProcess child, tools::ChildProcess::Spawn(spawn));
    children.push_back(std::move(child));
  }
  Cost cost;
  cost.cpu = absl::ZeroDuration();
  // The last one first: it ends first, or all fail.
  for (size_t i = commands.size(); i-- > 0;) {
    rusage used{};
    if (const int status = children[i].Wait(&used); status != 0) {
      return Error(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat(commands[i][0], " ended with ", status));
    }
    cost.cpu += absl::DurationFromTimeval(used.ru_utime) + absl::DurationFromTimeval(used.ru_stime);
    cost.memory = std::max(cost.memory, static_cast<uint64_t>(used.ru_maxrss) << 10);
  }
  cost.wall = absl::Now() - start;
  ASSIGN_OR_RETURN(const absl::Duration after, nodes.Cpu());
  cost.cpu += after - before;
  return cost;
}

class FileCase {
 public:
  FileCase(const Settings& settings, const Nodes& nodes, std::string folder)
      : settings_(settings),
        nodes_(nodes),
        in_(folder + "/in.safetensors"),
        out_(folder + "/out") {}

  absl::Status MakeFile() {
    tools::SpawnOptions spawn;
    spawn.arguments = {settings_.ferryctl, "make-checkpoint", in_, "--size", "1GB"};
    return tools::RunAndRead(spawn).status();
  }
  absl::StatusOr<Cost> Copy() { return RunAfresh({{"cp", in_, out_}}); }
  absl::StatusOr<Cost> NetCat() {
    ASSIGN_OR_RETURN(const int port, FreeTcpPort());
    const std::string at = absl::StrCat(" 127.0.0.1 ", port);
    return RunAfresh({{"/bin/sh", "-c", absl::StrCat("exec nc -l", at, " > ", out_)},
                      {"/bin/sh", "-c",
                       absl::StrCat("until nc -N", at, " < ", in_, " 2> /dev/null; do :; done")}});
  }
  absl::StatusOr<Cost> Ferry(const std::string& route, bool raw) {
    std::vector<std::string> receive = Command(1, "recv", out_, "--from", 0, route);
    std::vector<std::string> send = Command(0, "send", in_, "--to", 1, route);
    if (raw) send.emplace_back("--raw");
    ASSIGN_OR_RETURN(const Cost cost, RunAfresh({receive, send}));
    tools::SpawnOptions compare;
    compare.arguments = {"cmp", in_, out_};
    RETURN_IF_ERROR(tools::RunAndRead(compare).status());
    return cost;
  }

 private:
  absl::StatusOr<Cost> RunAfresh(const std::vector<std::vector<std::string>>& commands) {
    unlink(out_.c_str());
    return Run(nodes_, commands);
  }
  std::vector<std::string> Command(int node, const char* verb, const std::string& file,
                                   const char* other, int other_node, const std::string& route) {
    return {"/bin/sh",
            "-c",
            "exec \"$@\" > /dev/null",
            "sh",
            settings_.ferryctl,
            "--runtime-dir",
            nodes_.RuntimeDir(node),
            verb,
            file,
            other,
            absl::StrCat(nodes_.Host(other_node)),
            "--key",
            "file",
            "--route",
            route};
  }

  const Settings& settings_;
  const Nodes& nodes_;
  const std::string in_, out_;
};

Row AtMost(std::string name, std::string unit, double value, double target) {
  Row row;
  row.name = std::move(name);
  row.unit = std::move(unit);
  row.warm = value;
  row.at_most = true;
  row.target = target;
  return row;
}

void Add(const std::string& name, const Cost& ours, const char* peer, const Cost& theirs,
         double most_wall, std::optional<double> most_cpu, Report& report) {
  Row wall = AtMost(name, "s", absl::ToDoubleSeconds(ours.wall), most_wall);
  wall.peer = peer;
  wall.peer_warm = absl::ToDoubleSeconds(theirs.wall);
  report.Add(std::move(wall));
  Row cpu =
      AtMost(absl::StrCat(name, ", CPU of all processes"), "s", absl::ToDoubleSeconds(ours.cpu), 0);
  cpu.target = most_cpu;
  cpu.peer = peer;
  cpu.peer_warm = absl::ToDoubleSeconds(theirs.cpu);
  report.Add(std::move(cpu));
}

}  // namespace

absl::Status MeasureFiles(const Settings& settings, const Nodes& nodes, Report& report) {
  constexpr double kMostMemory = 320;  // MiB
  ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Make());
  FileCase files(settings, nodes, folder.path());
  RETURN_IF_ERROR(files.MakeFile());
  Cost copy, raw, tensors, tcp, netcat;
  for (int round = 0; round < settings.rounds; ++round) {
    ASSIGN_OR_RETURN(Cost cost, files.Copy());
    copy.Best(cost);
    ASSIGN_OR_RETURN(cost, files.Ferry("mapped", true));
    raw.Best(cost);
    ASSIGN_OR_RETURN(cost, files.Ferry("mapped", false));
    tensors.Best(cost);
    ASSIGN_OR_RETURN(cost, files.Ferry("tcp", true));
    tcp.Best(cost);
    ASSIGN_OR_RETURN(cost, files.NetCat());
    netcat.Best(cost);
  }
  Add("1 GB file mapped", raw, "cp", copy, 1.3, 2.5, report);
  Add("1 GB .safetensors mapped", tensors, "cp", copy, 1.3, 2.5, report);
  Add("1 GB file tcp", tcp, "nc", netcat, 1.0, std::nullopt, report);
  constexpr double kMiB = 1 << 20;
  report.Add(AtMost("memory of either end, 1 GB file", "MiB",
                    static_cast<double>(std::max(raw.memory, tcp.memory)) / kMiB, kMostMemory));
  report.Add(AtMost("memory of either end, 1 GB .safetensors", "MiB",
                    static_cast<double>(tensors.memory) / kMiB, kMostMemory));
  return absl::OkStatus();
}

}  // namespace ferry::bench
