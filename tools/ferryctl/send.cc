// SPDX-License-Identifier: Apache-2.0
// ferryctl send: sends a file to a device, where `ferryctl recv` receives it. See file_protocol.h.
#include <CLI/CLI.hpp>

#include <deque>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "tools/ferryctl/checksum.h"
#include "tools/ferryctl/failure.h"
#include "tools/ferryctl/file_io.h"
#include "tools/ferryctl/file_ring.h"
#include "tools/ferryctl/file_transfer.h"
#include "tools/ferryctl/progress.h"
#include "tools/ferryctl/stream_io.h"

namespace ferry::tools {
namespace {

// What is sent: a regular file, or a stream.
struct Source {
  std::optional<InputFile> file;
  std::optional<InputStream> stream;
  std::optional<Sha256> sum;  // if --checksum asks for it

  // How much of the chunk there is; of a file all. Adds it to the sum.
  absl::StatusOr<uint64_t> ReadInto(const FileRing& ring, uint64_t number, const FileChunk& chunk) {
    uint64_t have = 0;
    RETURN_IF_ERROR(ring.Fill(number, chunk.bytes,
                              [&](uint64_t done, std::byte* to, size_t bytes) -> absl::Status {
                                if (have < done) return absl::OkStatus();  // the stream has ended
                                size_t got = bytes;
                                if (stream) {
                                  ASSIGN_OR_RETURN(got, stream->Read(to, bytes));
                                } else {
                                  RETURN_IF_ERROR(file->Read(chunk.offset + done, to, bytes));
                                }
                                if (sum) sum->Add({reinterpret_cast<const char*>(to), got});
                                have += got;
                                return absl::OkStatus();
                              }));
    return have;
  }
};

class SendCommand : public Command {
 public:
  SendCommand() : Command("send", "Send a file; .safetensors as one buffer per tensor") {}
  void Define(CLI::App& app) override {
    flags_.Define(app, End::kSend);
    app.add_flag("--raw", raw_, "As bytes, whatever the file's name");
  }

  absl::StatusOr<int> Run(const Globals& globals) override {
    const absl::Status done = Send(globals);
    return done.ok() ? absl::StatusOr<int>(kExitOk) : InTermsOfFile(done, flags_.Key(), id_);
  }

 private:
  absl::Status Send(const Globals& globals) {
    Source source;
    FileHead head;
    const absl::StatusOr<FilePlan> plan = OpenSource(source, head);
    absl::StatusOr<FileSession> attached = OpenFileSession(flags_, globals, End::kSend);
    if (!plan.ok()) {
      if (attached.ok()) TellOther(*attached, flags_.Key(), plan.status());
      return plan.status();
    }
    RETURN_IF_ERROR(attached.status());
    FileSession& session = *attached;
    FileSummary summary;
    summary.did = "sent";
    summary.kind = head.preamble.kind;
    const absl::Time start = absl::Now();

    ASSIGN_OR_RETURN(FilePromises promises,
                     FilePromises::Make(session.session.get(), session.target, flags_.Key(), id_));
    const absl::Status sent =
        promises.CauseOf(SendAll(globals, head, *plan, source, session, promises, summary));
    if (!sent.ok()) {
      promises.Break(sent);
      return sent;
    }
    summary.elapsed = absl::Now() - start;
    PrintSummary(flags_, globals, session, summary);
    return absl::OkStatus();
  }

  absl::StatusOr<FilePlan> OpenSource(Source& source, FileHead& head) const {
    if (IsStream(flags_.file)) {
      ASSIGN_OR_RETURN(source.stream, InputStream::Open(flags_.file));
      head.preamble.kind = FileKind::kStream;
    } else {
      ASSIGN_OR_RETURN(source.file, InputFile::Open(flags_.file));
      ASSIGN_OR_RETURN(head, ReadFileHead(*source.file, flags_.file, raw_));
    }
    if (flags_.checksum) source.sum.emplace().Add(head.header);
    head.preamble.id = id_;
    head.preamble.summed = flags_.checksum;
    absl::StatusOr<FilePlan> plan = PlanFile(head.preamble, head.header, flags_.Key());
    if (!plan.ok()) return NoSafetensors(plan.status(), flags_.file);
    return plan;
  }

  absl::Status SendAll(const Globals& globals, const FileHead& head, const FilePlan& plan,
                       Source& source, FileSession& session, FilePromises& promises,
                       FileSummary& summary) {
    RETURN_IF_ERROR(
        SendBytes(session, promises, PreambleKey(flags_.Key()), EncodePreamble(head.preamble)));
    RETURN_IF_ERROR(promises.Meet(id_, session.target.deadline));
    // From here on the other end is there.
    session.target.deadline = kAsLongAsBothLive;
    session.target.continues = promises.id();
    if (source.stream) {
      RETURN_IF_ERROR(promises.SignalEnd(session.stop.get()));
      source.stream->StopAt(session.stop.get());
    }
    if (!head.header.empty()) {
      RETURN_IF_ERROR(SendBytes(session, promises, HeaderKey(flags_.Key(), id_), head.header));
    }
    summary.bytes = head.header.size();
    RETURN_IF_ERROR(SendData(globals, plan, source, session, promises, summary));
    if (source.sum) {
      summary.sha256 = source.sum->Finish();
      RETURN_IF_ERROR(SendBytes(session, promises, SumKey(flags_.Key(), id_), summary.sha256));
    }
    promises.Keep();
    return promises.WaitForOther();
  }

  // Reads one chunk after the other while those before it move. A chunk is posted only when it is
  // read: if this process dies, the receiver hears of it by our promise.
  absl::Status SendData(const Globals& globals, const FilePlan& plan, Source& source,
                        FileSession& session, FilePromises& promises, FileSummary& summary) {
    ASSIGN_OR_RETURN(const FileRing ring,
                     FileRing::Create(session.session.get(), session.target.device, plan));
    Progress progress(absl::StrCat("send ", flags_.Key()), BytesOf(plan), !globals.json);
    const absl::Time first_post = absl::Now();
    ChunkCutter cutter(plan, session.BatchTransfers());
    struct Posted {
      BatchPtr batch;
      uint64_t bytes = 0;
    };
    std::deque<Posted> posted;
    // Waits until at most this many batches are not over.
    const auto settle = [&](size_t left) -> absl::Status {
      while (posted.size() > left) {
        RETURN_IF_ERROR(promises.Wait(posted.front().batch));
        summary.bytes += posted.front().bytes;
        progress.Show(summary.bytes);
        posted.pop_front();
      }
      return absl::OkStatus();
    };
    bool ended = false;
    for (uint64_t number = 0; !ended; ++number) {
      const std::optional<FileChunk> chunk = cutter.Next();
      if (!chunk) break;
      RETURN_IF_ERROR(settle(ring.slots() - 1));
      absl::StatusOr<uint64_t> bytes = source.ReadInto(ring, number, *chunk);
      if (absl::IsCancelled(bytes.status())) return promises.WaitForOther();
      RETURN_IF_ERROR(bytes.status());
      if (source.stream) {
        RETURN_IF_ERROR(ring.SetTrailer(number, *chunk, *bytes));
        ended = *bytes < chunk->bytes;
      }
      ASSIGN_OR_RETURN(BatchPtr batch,
                       ring.Post(session.session.get(), session.target, number, *chunk));
      session.last = ferry_batch_first_id(batch.get()) + ferry_batch_size(batch.get()) - 1;
      summary.buffers += chunk->transfers.size();
      posted.push_back({std::move(batch), *bytes});
    }
    RETURN_IF_ERROR(settle(0));
    summary.moving = absl::Now() - first_post;
    return absl::OkStatus();
  }

  FileFlags flags_;
  bool raw_ = false;
  const uint64_t id_ = NewFileId();
};

}  // namespace

void AddSendCommand(CommandList& commands) { commands.push_back(std::make_unique<SendCommand>()); }

}  // namespace ferry::tools
