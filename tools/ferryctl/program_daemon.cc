// SPDX-License-Identifier: Apache-2.0
// Runs programs by the daemon over files, lists them, and releases those that are barred.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/duration.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/client.h"
#include "tools/ferryctl/device_buffers.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/program_list.h"
#include "tools/ferryctl/program_run.h"

namespace ferry::tools {
namespace {

struct FreeProgram {
  void operator()(ferry_program* program) const { ferry_program_free(program); }
};

std::vector<compute::Buffer> BuffersOf(const ferry_program* program) {
  std::vector<compute::Buffer> buffers;
  for (size_t i = 0; i < ferry_program_buffers(program); ++i) {
    const ferry_program_buffer buffer = ferry_program_buffer_at(program, i);
    const compute::Access access = buffer.access == FERRY_READ    ? compute::Access::kRead
                                   : buffer.access == FERRY_WRITE ? compute::Access::kWrite
                                                                  : compute::Access::kReadWrite;
    buffers.push_back(
        {buffer.name, access, buffer.bytes, buffer.donated != 0, buffer.constant != 0});
  }
  return buffers;
}

// A buffer that is sent or received.
struct Move {
  std::string buffer;
  uint64_t device = 0;
  std::string key;
};

absl::StatusOr<std::vector<Move>> MovesOf(const char* flag, const std::vector<std::string>& texts) {
  std::vector<Move> moves;
  for (const std::string& text : texts) {
    const size_t equals = text.find('=');
    const size_t colon = text.find(':', equals == std::string::npos ? 0 : equals);
    Move move;
    if (equals == std::string::npos || colon == std::string::npos ||
        !absl::SimpleAtoi(text.substr(equals + 1, colon - equals - 1), &move.device)) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat(flag, " ", text, " is not NAME=DEVICE:KEY"));
    }
    move.buffer = text.substr(0, equals);
    move.key = text.substr(colon + 1);
    moves.push_back(std::move(move));
  }
  return moves;
}

// Parses NAME=DEVICE; names must be among `texts`.
absl::StatusOr<std::vector<std::pair<std::string, uint64_t>>> PeersOf(
    const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, uint64_t>> peers;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    uint64_t device = 0;
    if (equals == std::string::npos || !absl::SimpleAtoi(text.substr(equals + 1), &device)) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat("--peer ", text, " is not NAME=DEVICE"));
    }
    peers.emplace_back(text.substr(0, equals), device);
  }
  return peers;
}

// A buffer that is moved has no file: before the run it is zero, or what was received.
absl::Status CheckMove(const compute::Buffer& buffer, bool sends) {
  const compute::Access useless = sends ? compute::Access::kRead : compute::Access::kWrite;
  if (buffer.access != useless) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
               sends ? absl::StrCat("--send ", buffer.name, ": the program only reads @",
                                    buffer.name, ", so that zeros would be sent")
                     : absl::StrCat("--recv ", buffer.name, ": the program only writes @",
                                    buffer.name, ", so that what arrives would be lost"));
}

// The value of 'defined' counter 0 once the job has made what is sent.
constexpr uint64_t kMade = 1;

// Null if there are none.
absl::StatusOr<BatchPtr> PostMoves(ferry_session* session, uint64_t device, End end,
                                   const std::vector<Move>& moves,
                                   const std::vector<ferry_binding>& bound,
                                   const ferry_post_options& options) {
  if (moves.empty()) return BatchPtr();
  std::vector<ferry_transfer> transfers;
  for (const Move& move : moves) {
    const auto binding = std::find_if(bound.begin(), bound.end(), [&](const ferry_binding& one) {
      return one.name == move.buffer;
    });
    ferry_transfer transfer = {};
    transfer.remote_device = move.device;
    transfer.key = move.key.data();
    transfer.key_bytes = move.key.size();
    transfer.ranges = &binding->range;
    transfer.range_count = 1;
    transfer.has_defined_at = end == End::kSend ? 1 : 0;
    transfer.defined_value = kMade;
    transfers.push_back(transfer);
  }
  ferry_batch* batch = nullptr;
  const auto post = end == End::kSend ? ferry_cross_host_send : ferry_cross_host_receive;
  RETURN_IF_ERROR(
      FromFerry(post(session, device, transfers.data(), transfers.size(), &options, &batch)));
  return BatchPtr(batch);
}

// What is moved of a program's buffers, each once.
absl::StatusOr<std::set<std::string>> CheckMoves(const std::vector<compute::Buffer>& buffers,
                                                 const std::vector<Move>& sends,
                                                 const std::vector<Move>& receives) {
  std::set<std::string> moved;
  for (const auto* moves : {&sends, &receives}) {
    for (const Move& move : *moves) {
      const auto known =
          std::find_if(buffers.begin(), buffers.end(),
                       [&](const compute::Buffer& buffer) { return buffer.name == move.buffer; });
      if (known != buffers.end() && moved.insert(move.buffer).second) {
        RETURN_IF_ERROR(CheckMove(*known, moves == &sends));
        continue;
      }
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat("run a program: it has no buffer @", move.buffer,
                                ", or it is sent and received"));
    }
  }
  return moved;
}

// A program of a session, and what it is run with.
struct Job {
  ferry_session* session = nullptr;
  uint64_t device = 0;
  const ferry_program* program = nullptr;
  std::vector<Move> sends;
  std::vector<Move> receives;
  std::vector<ferry_peer> peers;
  std::string key_suffix;
  std::optional<absl::Duration> deadline;
  absl::Duration patience;
};

// Posts what is moved and the run, which comes after the one and feeds the other, and waits for it.
absl::Status RunJob(const Job& given, const std::vector<ferry_binding>& bound) {
  ferry_post_options posting = {};
  posting.struct_size = sizeof(posting);
  if (given.deadline) posting.deadline_ns = ToFerry(*given.deadline);
  ASSIGN_OR_RETURN(const BatchPtr sent,
                   PostMoves(given.session, given.device, End::kSend, given.sends, bound, posting));
  ASSIGN_OR_RETURN(const BatchPtr received, PostMoves(given.session, given.device, End::kReceive,
                                                      given.receives, bound, posting));
  ferry_run run = {};
  run.program = given.program;
  run.bindings = bound.empty() ? nullptr : bound.data();
  run.binding_count = bound.size();
  run.peers = given.peers.empty() ? nullptr : given.peers.data();
  run.peer_count = given.peers.size();
  run.key_suffix = given.key_suffix.empty() ? nullptr : given.key_suffix.data();
  run.key_suffix_bytes = given.key_suffix.size();
  run.after = received.get();
  run.feeds = sent.get();
  run.defines_value = sent != nullptr ? kMade : 0;
  ferry_batch* posted = nullptr;
  RETURN_IF_ERROR(
      FromFerry(ferry_run_programs(given.session, given.device, &run, 1, &posting, &posted)));
  const BatchPtr job(posted);
  RETURN_IF_ERROR(Wait(job, given.patience));
  return sent != nullptr ? Wait(sent, given.patience) : absl::OkStatus();
}

// Enough to tell programs apart.
std::string ShortName(const std::string& fingerprint) {
  return absl::BytesToHexString(fingerprint.substr(0, 8));
}

}  // namespace

absl::Status RunProgramByDaemon(const Globals& globals, const DaemonRun& given) {
  Job job;
  ASSIGN_OR_RETURN(job.sends, MovesOf("--send", given.sends));
  ASSIGN_OR_RETURN(job.receives, MovesOf("--recv", given.receives));
  ASSIGN_OR_RETURN(const auto named, PeersOf(given.peers));
  for (const auto& [name, device] : named) job.peers.push_back({name.c_str(), device});
  job.key_suffix = given.key_suffix;
  job.deadline = given.deadline;
  job.patience = globals.timeout.value_or(absl::InfiniteDuration());
  SessionOptions options;
  options.client_dir = globals.ClientDir();
  options.name = "ferryctl-program";
  if (globals.timeout) options.timeout = *globals.timeout;
  ASSIGN_OR_RETURN(const SessionPtr session, OpenSession(options));
  job.session = session.get();
  // One that is named is the daemon's to refuse, as it would any client's.
  ASSIGN_OR_RETURN(job.device, given.device >= 0 ? static_cast<uint64_t>(given.device)
                                                 : OwnDevice(session.get(), -1));
  ferry_program* compiled = nullptr;
  RETURN_IF_ERROR(FromFerry(ferry_program_compile(session.get(), job.device, given.text.data(),
                                                  given.text.size(), &compiled)));
  const std::unique_ptr<ferry_program, FreeProgram> program(compiled);
  job.program = compiled;
  const std::vector<compute::Buffer> buffers = BuffersOf(compiled);
  ASSIGN_OR_RETURN(const std::set<std::string> moved, CheckMoves(buffers, job.sends, job.receives));
  std::optional<DeviceBuffers> memory;
  return RunOverFiles(
      buffers, given.bindings, moved,
      [&](uint64_t bytes) -> absl::StatusOr<std::byte*> {
        ASSIGN_OR_RETURN(memory,
                         DeviceBuffers::Make(session.get(), job.device, bytes, job.patience));
        return memory->data();
      },
      [&](const std::vector<absl::Span<std::byte>>& spans) -> absl::Status {
        std::vector<ferry_binding> bound;
        for (size_t i = 0; i < spans.size(); ++i) {
          const auto offset = static_cast<uint64_t>(spans[i].data() - memory->data());
          bound.push_back(
              {buffers[i].name.c_str(), {memory->arena().get(), offset, spans[i].size()}, 0});
        }
        RETURN_IF_ERROR(memory->Upload());
        RETURN_IF_ERROR(RunJob(job, bound));
        return memory->Download();
      });
}

namespace {

constexpr auto kRight = Table::Align::kRight;

std::string CountText(uint64_t number, const char* what) {
  return absl::StrCat(number, " ", what, number == 1 ? "\n" : "s\n");
}

}  // namespace

std::string JobsText(const ferry::admin::v1::ListJobsResponse& response) {
  Table jobs({{"SESSION", kRight},
              {"JOB", kRight},
              {"DEVICE", kRight},
              {"PROGRAM"},
              {"BUFFERS", kRight},
              {"SCRATCH", kRight},
              {"STATE"},
              {"AGE", kRight},
              {"FIRINGS", kRight},
              {"RAN", kRight},
              {"WAITS FOR"}});
  const auto text = [](const auto& duration) {
    return DurationText(absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos()));
  };
  for (const ferry::admin::v1::JobRow& row : response.jobs()) {
    jobs.AddRow({absl::StrCat(row.session_id()), absl::StrCat(row.job_id()),
                 absl::StrCat(row.global_device_id()), ShortName(row.fingerprint()),
                 HumanSize(row.bytes()), HumanSize(row.scratch_bytes()), row.state(),
                 text(row.age()), row.prepared() ? HumanCount(row.firings()) : "",
                 text(row.run_time()), row.waits_for()});
  }
  return absl::StrCat(CountText(response.total_jobs(), "job"), jobs.ToString());
}

absl::StatusOr<std::string> ListPrograms(const Globals& globals) {
  namespace admin = ferry::admin::v1;
  ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
  admin::ListJobsResponse response;
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.ListJobs(context, admin::ListJobsRequest(), &response);
  }));
  if (globals.json) return absl::StrCat(MessageJson(response), "\n");
  Table programs(
      {{"PROGRAM"}, {"OPS", kRight}, {"BUFFERS", kRight}, {"SCRATCH", kRight}, {"FLOPS", kRight}});
  for (const admin::ProgramRow& row : response.programs()) {
    programs.AddRow({ShortName(row.fingerprint()), HumanCount(row.ops()), HumanSize(row.bytes()),
                     HumanSize(row.scratch_bytes()), HumanCount(row.flops())});
  }
  return absl::StrCat(CountText(response.total_programs(), "program"), programs.ToString(), "\n",
                      JobsText(response));
}

absl::StatusOr<std::string> ListBarredPrograms(const Globals& globals) {
  namespace admin = ferry::admin::v1;
  constexpr auto kRight = Table::Align::kRight;
  ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
  admin::ListBarredProgramsResponse response;
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.ListBarredPrograms(context, admin::ListBarredProgramsRequest(), &response);
  }));
  if (globals.json) return absl::StrCat(MessageJson(response), "\n");
  if (response.programs().empty()) return std::string("no program is barred from GPUs\n");
  Table table({{"PROGRAM"},
               {"DEVICE", kRight},
               {"GPU"},
               {"UID", kRight},
               {"LOST AT"},
               {"TIMES", kRight},
               {"SURE"},
               {"ERROR"}});
  for (const admin::BarredProgramRow& row : response.programs()) {
    const absl::Time when = absl::FromUnixMicros(row.time().seconds() * 1'000'000) +
                            absl::Nanoseconds(row.time().nanos());
    table.AddRow(
        {ShortName(row.fingerprint()), absl::StrCat(row.global_device_id()), row.gpu(),
         absl::StrCat(row.uid()), absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", when, absl::UTCTimeZone()),
         absl::StrCat(row.losses()),
         row.suspects() == 1 ? "yes" : absl::StrCat("one of ", row.suspects()), row.error()});
  }
  return table.ToString();
}

absl::StatusOr<std::string> ReleasePrograms(const Globals& globals,
                                            const std::vector<std::string>& names) {
  namespace admin = ferry::admin::v1;
  admin::ReleaseProgramsRequest request;
  for (const std::string& name : names) {
    if (name.size() % 2 != 0 || !std::all_of(name.begin(), name.end(), absl::ascii_isxdigit)) {
      return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                   absl::StrCat("release a program: '", name,
                                "' is not the beginning of a fingerprint, which is an even number "
                                "of hexadecimal digits"));
    }
    request.add_fingerprints(absl::HexStringToBytes(name));
  }
  ASSIGN_OR_RETURN(AdminClient client, AdminClient::Open(globals));
  admin::ReleaseProgramsResponse response;
  RETURN_IF_ERROR(client.Call([&](auto& stub, auto* context) {
    return stub.ReleasePrograms(context, request, &response);
  }));
  if (globals.json) return absl::StrCat(MessageJson(response), "\n");
  return absl::StrCat(response.released(), response.released() == 1 ? " program" : " programs",
                      " released\n");
}

}  // namespace ferry::tools
