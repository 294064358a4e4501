// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/file_transfer.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "ferry/ferry_cuda.h"
#include "tools/ferryctl/admin_client.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/format.h"
#include "tools/ferryctl/options.h"

namespace ferry::tools {
namespace {

// Of what is on its way between a file and a GPU.
constexpr uint64_t kStagingBytes = uint64_t{8} << 20;

// Until then it may well be that the other end is just being started.
constexpr absl::Duration kQuiet = absl::Seconds(2);

// "device 2 at node-b".
std::string DeviceText(ferry_session* session, uint64_t device) {
  std::string text = absl::StrCat("device ", device);
  ferry_device_list* list = nullptr;
  if (!FromFerry(ferry_cluster_devices(session, &list)).ok()) return text;  // an older daemon
  for (size_t i = 0; i < ferry_device_list_size(list); ++i) {
    const ferry_cluster_device known = ferry_device_list_at(list, i);
    if (known.global_device_id == device) absl::StrAppend(&text, " at ", known.node);
  }
  ferry_device_list_free(list);
  return text;
}

bool OnHost(const ArenaPtr& arena) { return ferry_arena_cuda_device(arena.get()) < 0; }

}  // namespace

void FileFlags::Define(CLI::App& app, const char* own, const char* remote) {
  app.add_option("file", file, "The file")->required();
  app.add_option(remote, remote_device, "The other end's global device id")
      ->required()
      ->check(AtLeast<uint64_t>(0));
  app.add_option(own, own_device, "A device of this daemon (the first one)")
      ->check(AtLeast<int64_t>(0));
  app.add_option("--key", key, "What both ends call it (the file's base name)");
  app.add_option("--domain", domain, "The job's secret name, at most 32 bytes (the uid's)")
      ->check([](const std::string& text) {
        return text.size() <= 32 ? "" : absl::StrCat("at most 32 bytes, not ", text.size());
      });
  AddParsed(app, "--route", route, ParseRoute, "Insist on local, mapped, ucx or nccl");
  AddParsed(app, "--deadline", deadline, ParseDeadline, "How long to wait for the other end (60s)");
  app.add_option("--name", name, "What the session is called in lists (ferryctl)");
  app.add_flag("--checksum", checksum, "Print the file's SHA-256, read once more for it");
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
  ASSIGN_OR_RETURN(opened.target.device, OwnDevice(opened.session.get(), flags.own_device));
  opened.target.remote_device = flags.remote_device;
  opened.target.domain = flags.domain;
  return opened;
}

absl::Status AwaitOtherEnd(const FileFlags& flags, const FileSession& session,
                           const BatchPtr& batch, absl::Time posted) {
  const absl::Duration quiet = posted + kQuiet - absl::Now();
  Wait(batch, std::max(quiet, absl::ZeroDuration())).IgnoreError();
  if (ferry_batch_over(batch.get())) return Wait(batch);
  const bool sends = session.target.end == End::kSend;
  std::string own = DeviceText(session.session.get(), session.target.device);
  std::string other = DeviceText(session.session.get(), session.target.remote_device);
  if (!sends) std::swap(own, other);
  std::fprintf(stderr, "waits for the %s: key '%s' from %s to %s\n", sends ? "receiver" : "sender",
               Printable(flags.Key()).c_str(), own.c_str(), other.c_str());
  return Wait(batch);
}

absl::StatusOr<FileLayout> LayOutFile(const FilePlan& plan, const ferry_session* session,
                                      uint64_t reserved) {
  ferry_limits limits = ferry_session_limits(session);
  // 0 would mean that the daemon names no limit.
  const uint64_t quota = limits.bytes == 0 ? UINT64_MAX : limits.bytes;
  const size_t count =
      limits.batch_transfers == 0 ? 1024 : std::min<size_t>(limits.batch_transfers, 1024);
  FileLayout layout;
  layout.batches = CutBatches(plan.pieces, count, kFileBatchBytes);
  // Arenas are whole pages.
  const uint64_t slack = reserved + (uint64_t{1} << 16);
  ASSIGN_OR_RETURN(layout.windows, CutWindows(layout.batches, quota > slack ? quota - slack : 0));
  return layout;
}

std::vector<Piece> PiecesInWindow(const FilePlan& plan, const FileBatch& batch,
                                  const FileWindow& window) {
  std::vector<Piece> pieces(plan.pieces.begin() + batch.first, plan.pieces.begin() + batch.last);
  for (Piece& piece : pieces) piece.offset -= window.offset;
  return pieces;
}

absl::Status ReadBatch(const InputFile& file, const FileBatch& batch, const FileWindow& window,
                       const ArenaPtr& arena) {
  const uint64_t at = batch.offset - window.offset;
  if (OnHost(arena)) return file.Read(batch.offset, DataOf(arena) + at, batch.bytes);
  std::vector<std::byte> staging(std::min(batch.bytes, kStagingBytes));
  for (uint64_t done = 0; done < batch.bytes; done += staging.size()) {
    const uint64_t now = std::min<uint64_t>(staging.size(), batch.bytes - done);
    RETURN_IF_ERROR(file.Read(batch.offset + done, staging.data(), now));
    RETURN_IF_ERROR(FromFerry(ferry_arena_write(arena.get(), at + done, staging.data(), now)));
  }
  return absl::OkStatus();
}

absl::Status WriteBatch(const OutputFile& file, const FileBatch& batch, const FileWindow& window,
                        const ArenaPtr& arena) {
  const uint64_t at = batch.offset - window.offset;
  if (OnHost(arena)) return file.Write(batch.offset, DataOf(arena) + at, batch.bytes);
  std::vector<std::byte> staging(std::min(batch.bytes, kStagingBytes));
  for (uint64_t done = 0; done < batch.bytes; done += staging.size()) {
    const uint64_t now = std::min<uint64_t>(staging.size(), batch.bytes - done);
    RETURN_IF_ERROR(FromFerry(ferry_arena_read(arena.get(), at + done, staging.data(), now)));
    RETURN_IF_ERROR(file.Write(batch.offset + done, staging.data(), now));
  }
  return absl::OkStatus();
}

void PrintSummary(const FileFlags& flags, const Globals& globals, const FileSession& session,
                  const FileSummary& summary) {
  const bool sends = session.target.end == End::kSend;
  const uint64_t source = sends ? session.target.device : session.target.remote_device;
  const uint64_t destination = sends ? session.target.remote_device : session.target.device;
  const std::string route = RouteTaken(session.session.get(), session.last);
  const double seconds = absl::ToDoubleSeconds(summary.elapsed);
  const double rate = GigabytesPerSecond(summary.bytes, summary.elapsed);
  const double moving_rate = GigabytesPerSecond(summary.bytes, summary.moving);
  if (globals.json) {
    nlohmann::ordered_json result = {
        {"did", summary.did},
        {"file", flags.file},
        {"kind", summary.kind == FileKind::kRaw ? "raw" : "safetensors"},
        {"source", source},
        {"destination", destination},
        {"buffers", summary.tensors},
        {"bytes", summary.bytes},
        {"seconds", seconds},
        {"gb_per_second", rate},
        {"transfer_seconds", absl::ToDoubleSeconds(summary.moving)},
        {"transfer_gb_per_second", moving_rate},
        {"route", route}};
    result["sha256"] = summary.sha256.empty() ? nlohmann::ordered_json(nullptr)
                                              : nlohmann::ordered_json(summary.sha256);
    std::printf(
        "%s\n",
        result.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
    return;
  }
  constexpr auto kRight = Table::Align::kRight;
  Table table({{summary.kind == FileKind::kRaw ? "BUFFERS" : "TENSORS", kRight},
               {"BYTES", kRight},
               {"SECONDS", kRight},
               {"GB/s", kRight},
               {"TRANSFER s", kRight},
               {"GB/s", kRight},
               {"ROUTE"}});
  table.AddRow({HumanCount(summary.tensors), HumanCount(summary.bytes),
                absl::StrFormat("%.3f", seconds), absl::StrFormat("%.2f", rate),
                absl::StrFormat("%.3f", absl::ToDoubleSeconds(summary.moving)),
                absl::StrFormat("%.2f", moving_rate), route});
  std::printf("%s %s, device %lu to device %lu\n%s", summary.did, Printable(flags.file).c_str(),
              static_cast<unsigned long>(source), static_cast<unsigned long>(destination),
              table.ToString().c_str());
  if (!summary.sha256.empty()) std::printf("sha256 %s\n", summary.sha256.c_str());
}

}  // namespace ferry::tools
