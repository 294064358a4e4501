// SPDX-License-Identifier: Apache-2.0
// ferryctl recv: receives what `ferryctl send` sends, into a file. See file_protocol.h.
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

// Where the data is written: a regular file, or a stream.
struct Sink {
  std::optional<OutputFile> file;
  std::optional<OutputStream> stream;
  std::optional<Sha256> sum;  // if the sender was asked for it

  // In the order of the file.
  absl::Status Write(uint64_t offset, const void* from, size_t bytes) {
    if (sum) sum->Add({static_cast<const char*>(from), bytes});
    return stream ? stream->Write(from, bytes) : file->Write(offset, from, bytes);
  }
};

class RecvCommand : public Command {
 public:
  RecvCommand() : Command("recv", "Receive what `ferryctl send` sends into a file") {}
  void Define(CLI::App& app) override { flags_.Define(app, End::kReceive); }

  absl::StatusOr<int> Run(const Globals& globals) override {
    const absl::Status done = Receive(globals);
    return done.ok() ? absl::StatusOr<int>(kExitOk) : InTermsOfFile(done, flags_.Key(), id_);
  }

 private:
  absl::Status Receive(const Globals& globals) {
    Sink sink;
    const absl::Status opened = OpenSink(sink);
    absl::StatusOr<FileSession> attached = OpenFileSession(flags_, globals, End::kReceive);
    if (!opened.ok()) {
      if (attached.ok()) TellOther(*attached, flags_.Key(), opened);
      return opened;
    }
    RETURN_IF_ERROR(attached.status());
    FileSession& session = *attached;
    FileSummary summary;
    summary.did = "received";

    ASSIGN_OR_RETURN(FilePromises promises,
                     FilePromises::Make(session.session.get(), session.target, flags_.Key(), 0));
    const absl::Status received =
        promises.CauseOf(ReceiveAll(globals, sink, session, promises, summary));
    if (!received.ok()) {
      promises.Break(received);
      return received;
    }
    PrintSummary(flags_, globals, session, summary);
    return absl::OkStatus();
  }

  absl::Status OpenSink(Sink& sink) const {
    if (IsStream(flags_.file)) {
      ASSIGN_OR_RETURN(sink.stream, OutputStream::Open(flags_.file));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(flags_.file));
    sink.file.emplace(std::move(file));
    return absl::OkStatus();
  }

  absl::Status ReceiveAll(const Globals& globals, Sink& sink, FileSession& session,
                          FilePromises& promises, FileSummary& summary) {
    ASSIGN_OR_RETURN(const std::string preamble_bytes,
                     ReceiveBytes(session, promises, PreambleKey(flags_.Key()), kPreambleBytes));
    // Until now the sender may not have existed. From here on it is there, and its time is
    // measured.
    const absl::Time start = absl::Now();
    ASSIGN_OR_RETURN(const Preamble preamble, DecodePreamble(preamble_bytes));
    id_ = preamble.id;
    RETURN_IF_ERROR(promises.Meet(id_, kAsLongAsBothLive));
    session.target.deadline = kAsLongAsBothLive;
    session.target.continues = promises.id();
    if (flags_.checksum || preamble.summed) sink.sum.emplace();
    std::string header;
    if (preamble.header_bytes > 0) {
      RETURN_IF_ERROR(promises.WaitUntilMet());
      ASSIGN_OR_RETURN(header, ReceiveBytes(session, promises, HeaderKey(flags_.Key(), id_),
                                            preamble.header_bytes));
    }
    ASSIGN_OR_RETURN(const FilePlan plan, PlanFile(preamble, header, flags_.Key()));
    if (sink.file) RETURN_IF_ERROR(sink.file->Reserve(preamble.file_bytes));
    RETURN_IF_ERROR(sink.Write(0, header.data(), header.size()));
    summary.kind = preamble.kind;
    summary.bytes = header.size();
    RETURN_IF_ERROR(promises.WaitUntilMet());
    RETURN_IF_ERROR(ReceiveData(globals, plan, sink, session, promises, summary));
    if (sink.sum)
      RETURN_IF_ERROR(CheckSum(preamble, sink.sum->Finish(), session, promises, summary));
    RETURN_IF_ERROR(promises.WaitForOther());
    if (sink.file) RETURN_IF_ERROR(sink.file->Commit());
    summary.elapsed = absl::Now() - start;
    promises.Keep();
    promises.WaitUntilTold();
    return absl::OkStatus();
  }

  absl::Status CheckSum(const Preamble& preamble, const std::string& sum, FileSession& session,
                        FilePromises& promises, FileSummary& summary) {
    if (flags_.checksum) summary.sha256 = sum;
    if (!preamble.summed) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::string theirs,
                     ReceiveBytes(session, promises, SumKey(flags_.Key(), id_), kSumBytes));
    if (theirs == sum) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("receive ", flags_.file,
                                            ": the SHA-256 of what came is ", sum,
                                            ", that of what was sent is ", theirs));
  }

  // Writes one chunk after the other while the next ones arrive.
  absl::Status ReceiveData(const Globals& globals, const FilePlan& plan, Sink& sink,
                           FileSession& session, FilePromises& promises, FileSummary& summary) {
    ASSIGN_OR_RETURN(const FileRing ring,
                     FileRing::Create(session.session.get(), session.target.device, plan));
    Progress progress(absl::StrCat("recv ", flags_.Key()), BytesOf(plan), !globals.json);
    const absl::Time first_post = absl::Now();
    ChunkCutter cutter(plan, session.BatchTransfers());
    struct Posted {
      BatchPtr batch;
      FileChunk chunk;
    };
    std::deque<Posted> posted;
    uint64_t next = 0;  // the next chunk to post
    const auto post = [&]() -> absl::Status {
      std::optional<FileChunk> chunk = cutter.Next();
      if (!chunk) return absl::OkStatus();
      ASSIGN_OR_RETURN(BatchPtr batch,
                       ring.Post(session.session.get(), session.target, next, *chunk));
      ++next;
      posted.push_back({std::move(batch), *std::move(chunk)});
      return absl::OkStatus();
    };
    for (size_t i = 0; i < ring.slots(); ++i) RETURN_IF_ERROR(post());
    bool ended = false;
    for (uint64_t number = 0; !posted.empty() && !ended; ++number) {
      const Posted& front = posted.front();
      RETURN_IF_ERROR(promises.Wait(front.batch));
      summary.moving = absl::Now() - first_post;
      summary.buffers += front.chunk.transfers.size();
      session.last = ferry_batch_first_id(front.batch.get());
      uint64_t bytes = front.chunk.bytes;
      if (plan.preamble.kind == FileKind::kStream) {
        ASSIGN_OR_RETURN(bytes, ring.Trailer(number, front.chunk));
        ended = bytes < front.chunk.bytes;
      }
      RETURN_IF_ERROR(ring.Drain(number, bytes, [&](uint64_t done, std::byte* data, size_t size) {
        return sink.Write(front.chunk.offset + done, data, size);
      }));
      summary.bytes += bytes;
      progress.Show(summary.bytes);
      posted.pop_front();
      if (!ended) RETURN_IF_ERROR(post());
    }
    // Receives beyond a stream's end are cancelled, because nobody sends them.
    for (const Posted& rest : posted) FromFerry(ferry_batch_cancel(rest.batch.get())).IgnoreError();
    return absl::OkStatus();
  }

  FileFlags flags_;
  uint64_t id_ = 0;  // id of the sending; 0 until it is known
};

}  // namespace

void AddRecvCommand(CommandList& commands) { commands.push_back(std::make_unique<RecvCommand>()); }

}  // namespace ferry::tools
