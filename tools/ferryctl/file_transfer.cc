// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_transfer.h"

#include <errno.h>
#include <sys/eventfd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/file_ring.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

// How soon an end that waits is met.
constexpr absl::Duration kMeeting = absl::Seconds(1);

// "device 2 at node-b".
std::string DeviceText(ferry_session* session, uint64_t device) {
  std::string text = absl::StrCat("device ", device);
  ferry_device_list* list = nullptr;
  // An older daemon has no list.
  if (!FromFerry(ferry_cluster_devices(session, &list)).ok()) return text;
  for (size_t i = 0; i < ferry_device_list_size(list); ++i) {
    const ferry_cluster_device known = ferry_device_list_at(list, i);
    if (known.global_device_id == device) absl::StrAppend(&text, " at ", known.node);
  }
  ferry_device_list_free(list);
  return text;
}

void SayWhomFor(const FileSession& session, const std::string& file_key) {
  const bool sends = session.target.end == End::kSend;
  std::string source = DeviceText(session.session.get(), session.target.device);
  std::string destination = DeviceText(session.session.get(), session.target.remote_device);
  if (!sends) std::swap(source, destination);
  const uint64_t own = session.target.device, remote = session.target.remote_device;
  std::fprintf(stderr,
               "waits for the %s: key '%s' from %s to %s, by `ferryctl %s FILE --from %lu --to %lu "
               "--key %s`%s\n",
               sends ? "receiver" : "sender", Printable(file_key).c_str(), source.c_str(),
               destination.c_str(), sends ? "recv" : "send",
               static_cast<unsigned long>(sends ? own : remote),
               static_cast<unsigned long>(sends ? remote : own), Printable(file_key).c_str(),
               own == remote ? " here (both ends are the same device)" : " there");
}

// Whether an error tells only of an earlier end that had found no other end and was over before
// ours came. The daemon tells of each such end once.
bool IsOfOneBefore(const absl::Status& status, End our_end) {
  return absl::StrContains(status.message(),
                           our_end == End::kSend ? "; that receive ended " : "; that send ended ");
}

absl::Status MoveBytes(const FileSession& session, FilePromises& promises, const std::string& key,
                       const ArenaPtr& arena, uint64_t bytes) {
  PostTarget target = session.target;
  const absl::Time begin = absl::Now();
  while (true) {
    ASSIGN_OR_RETURN(BatchPtr batch, Post(session.session.get(), target, arena.get(),
                                          {{key, 0, bytes, FERRY_UNSPECIFIED, {}}}));
    const absl::Status status =
        promises.Wait(batch, [&] { SayWhomFor(session, promises.file_key()); });
    if (promises.met() || session.gives_up || !IsOfOneBefore(status, target.end)) return status;
    if (session.target.deadline > absl::ZeroDuration()) {
      target.deadline = session.target.deadline - (absl::Now() - begin);
      if (target.deadline <= absl::ZeroDuration()) return status;
    }
    std::fprintf(stderr, "key '%s': the %s of before is gone (%s); waits for the next one\n",
                 Printable(promises.file_key()).c_str(),
                 target.end == End::kSend ? "receiver" : "sender",
                 std::string(ReasonName(ReasonOf(status))).c_str());
  }
}

const char* KindText(FileKind kind) {
  switch (kind) {
    case FileKind::kRaw:
      return "raw";
    case FileKind::kSafetensors:
      return "safetensors";
    case FileKind::kStream:
      return "stream";
  }
  return "unknown";
}

}  // namespace

void FileFlags::Define(CLI::App& app, End end) {
  const char* const own = end == End::kSend ? "--from" : "--to";
  const char* const remote = end == End::kSend ? "--to" : "--from";
  app.add_option("file", file,
                 "The file; - for standard input or output, which pipes and devices also are")
      ->required();
  app.add_option(remote, remote_device, "The other end's global device id")
      ->required()
      ->check(IdFrom("ferryctl devices"));
  app.add_option(own, own_device, "A device of this daemon (the first one)")
      ->check(IdFrom<int64_t>("ferryctl devices"));
  app.add_option("--key", key, "What both ends call it (the file's base name)");
  app.add_option("--domain", domain, "The job's secret name, at most 32 bytes (the uid's)")
      ->check([](const std::string& text) {
        return text.size() <= 32 ? "" : absl::StrCat("at most 32 bytes, not ", text.size());
      });
  AddParsed(app, "--route", route, ParseRoute, "Insist on local, mapped, tcp, ucx or nccl");
  AddParsed(app, "--deadline", deadline, ParseDeadline,
            "How long to wait for the other end to come (60s)");
  app.add_option("--name", name, "What the session is called in lists (ferryctl)");
  app.add_flag("--checksum", checksum,
               end == End::kSend
                   ? "Print the SHA-256 of what was sent; recv compares it with its own, and fails "
                     "if they differ"
                   : "Print the SHA-256 of what was received; send's compares it in any case");
}

std::string FileFlags::Key() const {
  return key.empty() ? file.substr(file.find_last_of('/') + 1) : key;
}

absl::StatusOr<FileSession> OpenFileSession(const FileFlags& flags, const Globals& globals,
                                            End end) {
  FileSession opened;
  opened.target.route = flags.route;
  opened.target.deadline = flags.deadline;
  SessionOptions options;
  options.client_dir = globals.ClientDir();
  options.name = flags.name.empty() ? "ferryctl" : flags.name;
  options.timeout = globals.timeout.value_or(absl::Seconds(10));
  ASSIGN_OR_RETURN(opened.session, OpenSession(options));
  opened.target.end = end;
  opened.stop = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!opened.stop.valid()) return absl::ErrnoToStatus(errno, "make an eventfd");
  ASSIGN_OR_RETURN(opened.target.device, OwnDevice(opened.session.get(), flags.own_device));
  opened.target.remote_device = flags.remote_device;
  opened.target.domain = flags.domain;
  return opened;
}

size_t FileSession::BatchTransfers() const {
  const ferry_limits limits = ferry_session_limits(session.get());
  uint64_t most = 1024;
  if (limits.batch_transfers != 0) most = std::min<uint64_t>(most, limits.batch_transfers);
  if (limits.transfers_in_flight != 0) {
    most = std::min(most, FileRing::InFlight(limits.transfers_in_flight) / FileRing::kSlots);
  }
  return std::max<uint64_t>(most, 1);
}

absl::Status SendBytes(const FileSession& session, FilePromises& promises, const std::string& key,
                       absl::string_view bytes) {
  ASSIGN_OR_RETURN(ArenaPtr arena,
                   CreateArena(session.session.get(), session.target.device, bytes.size()));
  RETURN_IF_ERROR(FromFerry(ferry_arena_write(arena.get(), 0, bytes.data(), bytes.size())));
  return MoveBytes(session, promises, key, arena, bytes.size());
}

absl::StatusOr<std::string> ReceiveBytes(const FileSession& session, FilePromises& promises,
                                         const std::string& key, uint64_t bytes) {
  ASSIGN_OR_RETURN(ArenaPtr arena,
                   CreateArena(session.session.get(), session.target.device, bytes));
  RETURN_IF_ERROR(MoveBytes(session, promises, key, arena, bytes));
  std::string received(bytes, '\0');
  RETURN_IF_ERROR(FromFerry(ferry_arena_read(arena.get(), 0, received.data(), bytes)));
  return received;
}

void TellOther(FileSession& session, const std::string& file_key, const absl::Status& why) {
  session.target.deadline = kMeeting;
  session.gives_up = true;
  const uint64_t id = NewFileId();
  absl::StatusOr<FilePromises> promises =
      FilePromises::Make(session.session.get(), session.target, file_key, id);
  if (!promises.ok()) return;
  const std::string key = PreambleKey(file_key);
  // An empty file whose promise is not kept does not exist, so the receiver takes this for no file.
  const absl::Status met = session.target.end == End::kSend
                               ? SendBytes(session, *promises, key, EncodePreamble({.id = id}))
                               : ReceiveBytes(session, *promises, key, kPreambleBytes).status();
  if (met.ok()) promises->Break(why);
}

void PrintSummary(const FileFlags& flags, const Globals& globals, const FileSession& session,
                  const FileSummary& summary) {
  const bool sends = session.target.end == End::kSend;
  const uint64_t source = sends ? session.target.device : session.target.remote_device;
  const uint64_t destination = sends ? session.target.remote_device : session.target.device;
  std::FILE* const out = !sends && flags.file == "-" ? stderr : stdout;
  const std::string route = RouteTaken(session.session.get(), session.last);
  const double seconds = absl::ToDoubleSeconds(summary.elapsed);
  const double rate = GigabytesPerSecond(summary.bytes, summary.elapsed);
  const double moving_rate = GigabytesPerSecond(summary.bytes, summary.moving);
  if (globals.json) {
    nlohmann::ordered_json result = {{"did", summary.did},
                                     {"file", flags.file},
                                     {"kind", KindText(summary.kind)},
                                     {"source", source},
                                     {"destination", destination},
                                     {"buffers", summary.buffers},
                                     {"bytes", summary.bytes},
                                     {"seconds", seconds},
                                     {"gb_per_second", rate},
                                     {"transfer_seconds", absl::ToDoubleSeconds(summary.moving)},
                                     {"transfer_gb_per_second", moving_rate},
                                     {"route", route}};
    result["sha256"] = summary.sha256.empty() ? nlohmann::ordered_json(nullptr)
                                              : nlohmann::ordered_json(summary.sha256);
    std::fprintf(
        out, "%s\n",
        result.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return;
  }
  constexpr auto kRight = Table::Align::kRight;
  Table table({{summary.kind == FileKind::kSafetensors ? "TENSORS" : "BUFFERS", kRight},
               {"BYTES", kRight},
               {"SECONDS", kRight},
               {"GB/s", kRight},
               {"TRANSFER s", kRight},
               {"GB/s", kRight},
               {"ROUTE"}});
  table.AddRow({HumanCount(summary.buffers), HumanCount(summary.bytes),
                absl::StrFormat("%.3f", seconds), absl::StrFormat("%.2f", rate),
                absl::StrFormat("%.3f", absl::ToDoubleSeconds(summary.moving)),
                absl::StrFormat("%.2f", moving_rate), route});
  std::fprintf(out, "%s %s, device %lu to device %lu\n%s", summary.did,
               Printable(flags.file).c_str(), static_cast<unsigned long>(source),
               static_cast<unsigned long>(destination), table.ToString().c_str());
  if (!summary.sha256.empty()) std::fprintf(out, "sha256 %s\n", summary.sha256.c_str());
}

}  // namespace ferry::tools
