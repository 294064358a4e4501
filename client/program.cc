// SPDX-License-Identifier: Apache-2.0
#include "client/program.h"

#include <set>
#include <utility>
#include <vector>

#include "client/api.h"
#include "client/arena.h"
#include "client/prepared.h"
#include "client/problems.h"

namespace ferry::client {
namespace {

void CheckBinding(const Session* session, const ferry_binding& binding, bool prepare,
                  const std::string& name, Problems& problems, StatusPtr& refused) {
  if (binding.name == nullptr) problems.Add(name, "has no name");
  problems.CheckNumber([&] { return name + ".data_type"; }, binding.data_type, FERRY_F4E2M1FN);
  if (binding.transfers != nullptr) {
    const char* const why = WhyNotOf(session, binding.transfers);
    if (why != nullptr) problems.Add(name + ".transfers", why);
    if (why == nullptr && !prepare) problems.Add(name + ".transfers", "is for prepared jobs");
  }
  const ferry_arena* const arena = binding.range.arena;
  if (const char* const why = WhyNotOf(session, arena)) {
    problems.Add(name,
                 arena == nullptr ? "has no arena" : "is of an arena that " + std::string(why));
  } else if (refused == nullptr) {
    refused = CheckArena(*arena);
  }
}

// Checks what only the library can check: that pointers are valid, and whose handles they are.
StatusPtr CheckRuns(const Session* session, const ferry_run* runs, const PostBatch& batch) {
  Problems problems("running programs");
  StatusPtr refused;  // why a daemon that came back has refused an arena
  problems.CheckOptions(*batch.options);
  for (size_t i = 0; i < batch.count; ++i) {
    const ferry_run& run = runs[i];
    const std::string field = "runs[" + std::to_string(i) + "].";
    const auto entry = [&] { return field; };
    if (const char* const why = WhyNotOf(session, run.program))
      problems.Add(field + "program", why);
    for (const ferry_batch* other : {run.after, run.feeds}) {
      const char* const why = other != nullptr ? WhyNotOf(session, other) : nullptr;
      if (why != nullptr) problems.Add(field + (other == run.after ? "after" : "feeds"), why);
    }
    problems.CheckList(entry, "peers", run.peers, "peer_count", run.peer_count);
    for (size_t j = 0; run.peers != nullptr && j < run.peer_count; ++j) {
      if (run.peers[j].name != nullptr) continue;
      problems.Add(field + "peers[" + std::to_string(j) + "]", "has no name");
    }
    problems.CheckList(entry, "key_suffix", run.key_suffix, "key_suffix_bytes",
                       run.key_suffix_bytes);
    problems.CheckList(entry, "bindings", run.bindings, "binding_count", run.binding_count);
    for (size_t j = 0; run.bindings != nullptr && j < run.binding_count; ++j) {
      CheckBinding(session, run.bindings[j], batch.prepare,
                   field + "bindings[" + std::to_string(j) + "]", problems, refused);
    }
  }
  StatusPtr error = problems.Take();
  return error != nullptr ? std::move(error) : std::move(refused);
}

std::vector<ProgramRun> RunsOf(const ferry_run* given, size_t count) {
  std::vector<ProgramRun> runs(count);
  for (size_t i = 0; i < count; ++i) {
    const ferry_run& run = given[i];
    runs[i].given = &run;
    runs[i].fingerprint = run.program->fingerprint();
    if (run.after != nullptr) {
      runs[i].first_after = run.after->first_id;
      runs[i].after = run.after->count;
    }
    if (run.feeds != nullptr) {
      runs[i].first_fed = run.feeds->first_id;
      runs[i].fed = run.feeds->count;
    }
  }
  return runs;
}

// Changes `error` of a post if the present daemon does not know what the runs name because that
// belonged to a daemon that is gone.
StatusPtr OrLost(const Session& session, const ferry_run* runs, size_t count, StatusPtr error) {
  if (error == nullptr || error->reason != kReasonTransferNotFound) return error;
  for (size_t i = 0; i < count; ++i) {
    for (const ferry_batch* const named : {runs[i].after, runs[i].feeds}) {
      if (named != nullptr && named->life->ended()) return session.LastLoss();
    }
  }
  return error;
}

}  // namespace

StatusPtr CompileProgram(const std::shared_ptr<Session>& session, uint64_t device,
                         std::string_view text, std::unique_ptr<ferry_program>* made) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  auto program = std::make_unique<ferry_program>();
  FERRY_CLIENT_RETURN_IF_ERROR(InArguments(session->Compile(device, text, &program->info),
                                           {{"device_id", "device"}, {"source", "text"}}));
  program->session = session;
  program->device = device;
  program->text = text;
  *made = std::move(program);
  return nullptr;
}

StatusPtr RunPrograms(const std::shared_ptr<Session>& session, const ferry_run* given,
                      PostBatch batch, std::unique_ptr<ferry_batch>* made) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckRuns(session.get(), given, batch));
  const std::vector<ProgramRun> runs = RunsOf(given, batch.count);
  batch.runs = runs.data();
  std::set<const ferry_program*> programs;
  for (size_t i = 0; i < batch.count; ++i) programs.insert(given[i].program);
  StatusPtr error = OrLost(*session, given, batch.count, PostChecked(session, batch, made));
  if (error == nullptr || error->reason != kReasonIdStale) return error;
  // The daemon has forgotten the program, or is another daemon. If the cause was not a program, the
  // second refusal says so.
  for (const ferry_program* program : programs) {
    ProgramInfo again;
    FERRY_CLIENT_RETURN_IF_ERROR(session->Compile(program->device, program->text, &again));
  }
  return OrLost(*session, given, batch.count, PostChecked(session, batch, made));
}

StatusPtr PreparePrograms(const std::shared_ptr<Session>& session, const ferry_run* given,
                          PostBatch batch, std::unique_ptr<ferry_prepared>* made) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckRuns(session.get(), given, batch));
  const std::vector<ProgramRun> runs = RunsOf(given, batch.count);
  batch.runs = runs.data();
  return OrLost(*session, given, batch.count, PrepareChecked(session, batch, made));
}

}  // namespace ferry::client

extern "C" {

using namespace ferry::client;  // NOLINT: the functions below are the boundary itself

static constexpr unsigned char kNoFingerprint[FERRY_FINGERPRINT_BYTES] = {};

ferry_status* ferry_program_compile(ferry_session* session, uint64_t device, const char* text,
                                    size_t text_bytes, ferry_program** program) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(program);
  if (text_bytes != 0) FERRY_CLIENT_NEEDS(text);
  std::unique_ptr<ferry_program> made;
  StatusPtr error =
      CompileProgram(Kept(session), device, std::string_view(text, text_bytes), &made);
  if (error == nullptr) *program = made.release();
  return error.release();
}

const unsigned char* ferry_program_fingerprint(const ferry_program* program) {
  return Usable(program) ? reinterpret_cast<const unsigned char*>(program->fingerprint().data())
                         : kNoFingerprint;
}

const char* ferry_program_plan(const ferry_program* program) {
  return Usable(program) ? program->info.plan.c_str() : "";
}

uint64_t ferry_program_scratch_bytes(const ferry_program* program) {
  return Usable(program) ? program->info.scratch_bytes : 0;
}

size_t ferry_program_buffers(const ferry_program* program) {
  return Usable(program) ? program->info.buffers.size() : 0;
}

ferry_program_buffer ferry_program_buffer_at(const ferry_program* program, size_t index) {
  if (index >= ferry_program_buffers(program)) return {"", 0, 0, 0, 0};
  const ProgramInfo::Buffer& buffer = program->info.buffers[index];
  return {buffer.name.c_str(), buffer.access, buffer.bytes, buffer.donated ? 1 : 0,
          buffer.constant ? 1 : 0};
}

void ferry_program_free(ferry_program* program) {
  if (!Usable(program) || !program->session->Mine()) return;
  delete program;
}

ferry_status* ferry_run_programs(ferry_session* session, uint64_t device, const ferry_run* runs,
                                 size_t count, const ferry_post_options* given,
                                 ferry_batch** batch) {
  FERRY_CLIENT_NEEDS(session);
  if (count != 0) FERRY_CLIENT_NEEDS(runs);
  FERRY_CLIENT_NEEDS(batch);
  ferry_post_options options;
  if (StatusPtr error = Given("ferry_post_options", given, &options)) return error.release();
  std::unique_ptr<ferry_batch> made;
  StatusPtr error = RunPrograms(
      Kept(session), runs, PostBatch{Direction::kRun, device, nullptr, count, &options}, &made);
  if (error == nullptr) *batch = made.release();
  return error.release();
}

ferry_status* ferry_prepare_programs(ferry_session* session, uint64_t device, const ferry_run* runs,
                                     size_t count, const ferry_post_options* given,
                                     ferry_prepared** prepared) {
  FERRY_CLIENT_NEEDS(session);
  if (count != 0) FERRY_CLIENT_NEEDS(runs);
  FERRY_CLIENT_NEEDS(prepared);
  ferry_post_options options;
  if (StatusPtr error = Given("ferry_post_options", given, &options)) return error.release();
  std::unique_ptr<ferry_prepared> made;
  StatusPtr error =
      PreparePrograms(Kept(session), runs,
                      PostBatch{Direction::kRun, device, nullptr, count, &options, true}, &made);
  if (error == nullptr) *prepared = made.release();
  return error.release();
}

}  // extern "C"
