// SPDX-License-Identifier: Apache-2.0
// Programs by the daemon: run over files, and listed.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/client.h"
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
    buffers.push_back({buffer.name, access, buffer.bytes, buffer.donated != 0});
  }
  return buffers;
}

// Enough to tell programs apart.
std::string ShortName(const std::string& fingerprint) {
  return absl::BytesToHexString(fingerprint.substr(0, 8));
}

}  // namespace

absl::Status RunProgramByDaemon(const Globals& globals, const std::string& text, int64_t device,
                                const std::vector<std::string>& bindings) {
  SessionOptions options;
  options.client_dir = globals.ClientDir();
  options.name = "ferryctl-program";
  if (globals.timeout) options.timeout = *globals.timeout;
  ASSIGN_OR_RETURN(const SessionPtr session, OpenSession(options));
  ASSIGN_OR_RETURN(const uint64_t own, OwnDevice(session.get(), device));
  ferry_program* compiled = nullptr;
  RETURN_IF_ERROR(
      FromFerry(ferry_program_compile(session.get(), own, text.data(), text.size(), &compiled)));
  const std::unique_ptr<ferry_program, FreeProgram> program(compiled);
  const std::vector<compute::Buffer> buffers = BuffersOf(program.get());
  ArenaPtr arena;
  return RunOverFiles(
      buffers, bindings,
      [&](uint64_t bytes) -> absl::StatusOr<std::byte*> {
        ASSIGN_OR_RETURN(arena, CreateArena(session.get(), own, std::max<uint64_t>(bytes, 1)));
        return DataOf(arena);
      },
      [&](const std::vector<absl::Span<std::byte>>& spans) -> absl::Status {
        std::vector<ferry_binding> bound;
        for (size_t i = 0; i < spans.size(); ++i) {
          const auto offset = static_cast<uint64_t>(spans[i].data() - DataOf(arena));
          bound.push_back({buffers[i].name.c_str(), {arena.get(), offset, spans[i].size()}, 0});
        }
        ferry_run run = {};
        run.program = program.get();
        run.bindings = bound.data();
        run.binding_count = bound.size();
        ferry_batch* batch = nullptr;
        RETURN_IF_ERROR(
            FromFerry(ferry_run_programs(session.get(), own, &run, 1, nullptr, &batch)));
        return Wait(BatchPtr(batch), globals.timeout.value_or(absl::InfiniteDuration()));
      });
}

absl::StatusOr<std::string> ListPrograms(const Globals& globals) {
  namespace admin = ferry::admin::v1;
  constexpr auto kRight = Table::Align::kRight;
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
  Table jobs({{"SESSION", kRight},
              {"JOB", kRight},
              {"DEVICE", kRight},
              {"PROGRAM"},
              {"BUFFERS", kRight},
              {"SCRATCH", kRight},
              {"STATE"},
              {"AGE", kRight},
              {"WAITS FOR"}});
  for (const admin::JobRow& row : response.jobs()) {
    const absl::Duration age =
        absl::Seconds(row.age().seconds()) + absl::Nanoseconds(row.age().nanos());
    jobs.AddRow({absl::StrCat(row.session_id()), absl::StrCat(row.job_id()),
                 absl::StrCat(row.global_device_id()), ShortName(row.fingerprint()),
                 HumanSize(row.bytes()), HumanSize(row.scratch_bytes()), row.state(),
                 HumanDuration(age), Printable(row.waits_for())});
  }
  return absl::StrCat(response.total_programs(), " programs\n", programs.ToString(), "\n",
                      response.total_jobs(), " jobs\n", jobs.ToString());
}

}  // namespace ferry::tools
