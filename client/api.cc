// SPDX-License-Identifier: Apache-2.0
// The C boundary for sessions, memory and timelines: turns arguments into calls, and results into
// handles and statuses. Transfers: transfer_calls.cc; programs: program.cc; CUDA: cuda_calls.cc.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <fstream>
#include <new>

#include "client/api.h"

namespace ferry::client {
namespace {

constexpr uint64_t kOpenTimeoutNs = 10ull * 1000000000;

bool MayBeInName(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool GoodName(const std::string& name) {
  constexpr size_t kMost = 63;
  return !name.empty() && name.size() <= kMost &&
         std::all_of(name.begin(), name.end(), MayBeInName);
}

std::string ProgramName() {
  std::string name;
  std::ifstream("/proc/self/comm") >> name;
  for (char& c : name) {
    if (!MayBeInName(c)) c = '_';
  }
  return name.empty() ? "unnamed" : name;
}

// The directory of the daemon's client sockets, if the application names none.
std::string ClientDir() {
  if (const char* dir = secure_getenv("FERRY_CLIENT_DIR"); dir != nullptr && *dir != '\0')
    return dir;
  const char* const runtime = secure_getenv("FERRY_RUNTIME_DIR");
  return std::string(runtime != nullptr && *runtime != '\0' ? runtime : "/run/ferry") + "/client";
}

StatusPtr OpenSession(const ferry_session_options* given, ferry_session** session) {
  constexpr char kDoing[] = "opening a session";
  ferry_session_options options;
  FERRY_CLIENT_RETURN_IF_ERROR(Given("ferry_session_options", given, &options));
  Session::Options wanted;
  wanted.name = options.name ? options.name : ProgramName();
  if (!GoodName(wanted.name)) {
    return BadField(kDoing, "options.name",
                    "is '" + wanted.name + "': it must be 1 to 63 characters of [A-Za-z0-9._-]");
  }
  wanted.client_dir = options.client_dir != nullptr ? options.client_dir : ClientDir();
  wanted.timeout_ns = options.timeout_ns ? options.timeout_ns : kOpenTimeoutNs;
  wanted.reattach = options.no_reattach == 0;
  if (options.reattach_timeout_ns != 0) wanted.reattach_timeout_ns = options.reattach_timeout_ns;
  std::shared_ptr<Session> opened;
  FERRY_CLIENT_RETURN_IF_ERROR(Session::Open(wanted, &opened));
  *session = new ferry_session(std::move(opened));
  return nullptr;
}

StatusPtr Define(Session* session, uint32_t timeline, uint64_t value) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckTimeline("advancing a 'defined' counter", timeline));
  session->timelines().Define(timeline, value);
  return nullptr;
}

StatusPtr WaitOver(Session* session, uint32_t timeline, uint64_t value, uint64_t timeout_ns) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckTimeline("waiting for an 'over' counter", timeline));
  switch (session->timelines().WaitOver(timeline, value, DeadlineAfter(timeout_ns))) {
    case Timelines::Wait::kReached:
      return nullptr;
    case Timelines::Wait::kEnded:
      return session->LastLoss();
    case Timelines::Wait::kTimeout:
      break;
  }
  return Error(kDeadlineExceeded, "",
               "waiting for 'over' counter " + std::to_string(timeline) + " to reach " +
                   std::to_string(value));
}

StatusPtr ResetOver(Session* session, uint32_t timeline) {
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckTimeline("resetting an 'over' counter", timeline));
  return session->ResetTimeline(timeline);
}

}  // namespace

StatusPtr CopyOptions(const char* type, const void* given, size_t size, void* options,
                      size_t known) {
  const auto bad = [&](const std::string& why) {
    StatusPtr error =
        Error(kInvalidArgument, kReasonFieldInvalid,
              std::string(type) + ".struct_size is " + std::to_string(size) + ": " + why);
    error->violations.emplace_back("options.struct_size", why);
    return error;
  };
  // Larger than the struct of any version: then struct_size was never set.
  constexpr size_t kMost = 4096;
  if (size < sizeof(size_t) || size > kMost) {
    return bad("it must be sizeof(" + std::string(type) + "), which is " + std::to_string(known) +
               " in version " FERRY_VERSION);
  }
  const char* const bytes = static_cast<const char*>(given);
  if (std::any_of(bytes + std::min(size, known), bytes + size, [](char c) { return c != 0; })) {
    return bad("libferry " FERRY_VERSION " knows " + std::to_string(known) +
               " bytes of it, and an option behind these is set; update the library");
  }
  memcpy(options, given, std::min(size, known));
  return nullptr;
}

}  // namespace ferry::client

extern "C" {

using namespace ferry::client;  // NOLINT: the functions below are the boundary itself

ferry_status* ferry_session_open(const ferry_session_options* options, ferry_session** session) {
  FERRY_CLIENT_NEEDS(session);
  return OpenSession(options, session).release();
}

void ferry_session_close(ferry_session* session) {
  if (!Usable(session) || !session->session->Mine()) return;
  session->session->Close();
  delete session;
}

ferry_status* ferry_session_health(ferry_session* session) {
  FERRY_CLIENT_NEEDS(session);
  return Kept(session)->Check().release();
}

ferry_status* ferry_session_wait(ferry_session* session, uint64_t timeout_ns) {
  FERRY_CLIENT_NEEDS(session);
  return Kept(session)->WaitAttached(timeout_ns).release();
}

uint64_t ferry_session_id(const ferry_session* session) {
  return Usable(session) ? session->session->welcome().session_id : 0;
}

const char* ferry_session_node(const ferry_session* session) {
  return Usable(session) ? session->session->welcome().node.c_str() : "";
}

size_t ferry_session_devices(const ferry_session* session) {
  return Usable(session) ? session->session->welcome().devices.size() : 0;
}

ferry_device ferry_session_device(const ferry_session* session, size_t index) {
  if (index >= ferry_session_devices(session)) return {0, 0, "", {}};
  const DeviceInfo& known = session->session->welcome().devices[index];
  ferry_device device{known.id, known.kind, known.name.c_str(), {}};
  known.uuid.copy(reinterpret_cast<char*>(device.uuid), sizeof(device.uuid));
  return device;
}

ferry_limits ferry_session_limits(const ferry_session* session) {
  if (!Usable(session)) return {sizeof(ferry_limits), 0, 0, 0, 0};
  return session->session->welcome().limits;
}

ferry_status* ferry_arena_create(ferry_session* session, uint64_t device, uint64_t bytes,
                                 unsigned flags, ferry_arena** arena) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(arena);
  return MakeArenaHandle(arena,
                         [&](std::unique_ptr<ferry_arena>* made) {
                           return OfField(
                               InArguments(CreateArena(Kept(session), device, bytes, flags, made),
                                           {{"device_id", "device"}, {"memory", "device"}}),
                               "device");
                         })
      .release();
}

ferry_status* ferry_arena_import(ferry_session* session, uint64_t device, int memfd, uint64_t bytes,
                                 ferry_arena** arena) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(arena);
  return MakeArenaHandle(arena,
                         [&](std::unique_ptr<ferry_arena>* made) {
                           return OfField(
                               InArguments(ImportArena(Kept(session), device, memfd, bytes, made),
                                           {{"device_id", "device"}, {"memory", "memfd"}}),
                               "memfd");
                         })
      .release();
}

void* ferry_arena_data(const ferry_arena* arena) { return Usable(arena) ? arena->data : nullptr; }
uint64_t ferry_arena_bytes(const ferry_arena* arena) { return Usable(arena) ? arena->bytes : 0; }
uint64_t ferry_arena_id(const ferry_arena* arena) { return Usable(arena) ? arena->id.load() : 0; }
uint64_t ferry_arena_device(const ferry_arena* arena) { return Usable(arena) ? arena->device : 0; }

ferry_status* ferry_arena_read(const ferry_arena* arena, uint64_t offset, void* to,
                               uint64_t bytes) {
  FERRY_CLIENT_NEEDS(arena);
  if (bytes != 0) FERRY_CLIENT_NEEDS(to);
  return OfField(ReadArena(*arena, offset, to, bytes), "arena").release();
}

ferry_status* ferry_arena_write(ferry_arena* arena, uint64_t offset, const void* from,
                                uint64_t bytes) {
  FERRY_CLIENT_NEEDS(arena);
  if (bytes != 0) FERRY_CLIENT_NEEDS(from);
  return OfField(WriteArena(*arena, offset, from, bytes), "arena").release();
}

ferry_status* ferry_arena_release(ferry_arena* arena) {
  FERRY_CLIENT_NEEDS(arena);
  return OfField(InArguments(ReleaseArena(arena), {{"arena_id", "arena"}}), "arena").release();
}

void ferry_arena_free(ferry_arena* arena) {
  if (!Usable(arena) || !arena->session->Mine()) return;
  FreeArena(arena);
}

ferry_status* ferry_define(ferry_session* session, uint32_t timeline, uint64_t value) {
  FERRY_CLIENT_NEEDS(session);
  return Define(session->session.get(), timeline, value).release();
}

uint64_t ferry_defined_value(const ferry_session* session, uint32_t timeline) {
  return Usable(session) ? session->session->timelines().Defined(timeline) : 0;
}

uint64_t ferry_over_value(const ferry_session* session, uint32_t timeline) {
  return Usable(session) ? session->session->timelines().Over(timeline).value : 0;
}

ferry_status* ferry_over_wait(ferry_session* session, uint32_t timeline, uint64_t value,
                              uint64_t timeout_ns) {
  FERRY_CLIENT_NEEDS(session);
  return WaitOver(Kept(session).get(), timeline, value, timeout_ns).release();
}

void ferry_over_failures(const ferry_session* session, uint32_t timeline, uint64_t* count,
                         uint64_t* first_failed) {
  CounterLine line;
  if (Usable(session)) line = session->session->timelines().Over(timeline);
  if (count != nullptr) *count = line.failures;
  if (first_failed != nullptr) *first_failed = line.first_failed;
}

ferry_status* ferry_over_reset(ferry_session* session, uint32_t timeline) {
  FERRY_CLIENT_NEEDS(session);
  return ResetOver(Kept(session).get(), timeline).release();
}

ferry_status* ferry_session_watch(ferry_session* session,
                                  void (*ended)(void* argument, uint64_t transfer_id,
                                                const ferry_status* status),
                                  void* argument) {
  FERRY_CLIENT_NEEDS(session);
  FERRY_CLIENT_NEEDS(ended);
  return Kept(session)->Watch(ended, argument).release();
}

}  // extern "C"
