// SPDX-License-Identifier: Apache-2.0
#include "client/cuda_streams.h"

#include <atomic>
#include <string>

#include "client/cuda_api.h"
#include "client/prepared.h"
#include "client/queued_stores.h"
#include "client/session.h"
#include "client/stream_hangs.h"

namespace ferry::client {
namespace {

// A number of this thread that no later thread gets: operations that a thread has queued may still
// wait when it is gone.
uint64_t ThisThread() {
  static std::atomic<uint64_t> last{0};
  thread_local const uint64_t own = ++last;
  return own;
}

// A stream whose operations libferry may queue to: not captured, and its context known.
struct OpenStream {
  Cuda* cuda = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;

  // One name for each queue of the GPU: one handle stands for the per-thread stream of whichever
  // thread uses it, and two handles for the default stream.
  ParkedStreams::Stream name() const {
    if (stream == CU_STREAM_PER_THREAD) return {context, stream, ThisThread()};
    return {context, stream == CU_STREAM_LEGACY ? nullptr : stream, 0};
  }
};

StatusPtr Open(ferry_cuda_stream stream, const std::string& doing, OpenStream* open) {
  FERRY_CLIENT_RETURN_IF_ERROR(Cuda::Get(&open->cuda));
  open->stream = stream;
  FERRY_CLIENT_CUDA(open->cuda, doing, cuStreamGetCtx, stream, &open->context);
  const CurrentContext current(open->cuda, open->context);
  CUstreamCaptureStatus capture;
  FERRY_CLIENT_CUDA(open->cuda, doing, cuStreamIsCapturing, stream, &capture);
  if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return nullptr;
  return BadField(doing, "stream",
                  "is being captured, and a graph would repeat this one value; queue it before or "
                  "behind the graph",
                  kFailedPrecondition);
}

StatusPtr Write(const OpenStream& on, Session& session, const uint64_t& word, uint64_t value,
                const std::string& doing) {
  const CurrentContext current(on.cuda, on.context);
  uint64_t address;
  FERRY_CLIENT_RETURN_IF_ERROR(session.streams().DeviceAddress(on.context, &word, doing, &address));
  FERRY_CLIENT_CUDA(on.cuda, doing, cuStreamWriteValue64, on.stream, address, value,
                    CU_STREAM_WRITE_VALUE_DEFAULT);
  QueuedStores::Get().Add(&word, value, on.name());
  return nullptr;
}

// Queues the wait if there is room for it; sets `queued` if there was.
StatusPtr Park(const OpenStream& on, Session& session, ParkedStreams::Wait wait,
               const std::string& doing, bool* queued) {
  const CurrentContext current(on.cuda, on.context);
  uint64_t address;
  FERRY_CLIENT_RETURN_IF_ERROR(
      session.streams().DeviceAddress(on.context, wait.word, doing, &address));
  CUdevice device;
  FERRY_CLIENT_CUDA(on.cuda, doing, cuCtxGetDevice, &device);
  ParkedStreams& parked = ParkedStreams::Get();
  *queued = parked.Enter(wait);
  if (!*queued) return nullptr;
  StatusPtr error = on.cuda->Check(
      on.cuda->cuStreamWaitValue64(on.stream, address, wait.value, on.cuda->wait_flags(device)),
      doing, "cuStreamWaitValue64");
  if (error != nullptr) parked.Leave(wait);
  return error;
}

StatusPtr WouldDeadlock(const std::string& doing, const std::string& why) {
  ParkedStreams& parked = ParkedStreams::Get();
  parked.CountWouldDeadlock();
  const ferry_stream_counts counts = parked.Counts();
  return Error(kFailedPrecondition, kReasonWouldDeadlock,
               doing + ": " + std::to_string(counts.parked) + " streams wait already, of " +
                   std::to_string(counts.parked_most) + " that may with " +
                   std::to_string(counts.connections) +
                   " connections (CUDA_DEVICE_MAX_CONNECTIONS), so that this wait is the host's; "
                   "but " +
                   why + ": do that first, or wait later");
}

}  // namespace

StatusPtr DefineOnStream(Session& session, ferry_cuda_stream stream, uint32_t timeline,
                         uint64_t value) {
  const std::string doing = "queueing on a stream that 'defined' counter " +
                            std::to_string(timeline) + " becomes " + std::to_string(value);
  FERRY_CLIENT_RETURN_IF_ERROR(session.CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckTimeline(doing, timeline));
  OpenStream on;
  FERRY_CLIENT_RETURN_IF_ERROR(Open(stream, doing, &on));
  return Write(on, session, session.timelines().pages().defined[timeline].value, value, doing);
}

StatusPtr WaitOverOnStream(const std::shared_ptr<Session>& session, ferry_cuda_stream stream,
                           uint32_t timeline, uint64_t value) {
  const std::string doing = "queueing on a stream the wait for 'over' counter " +
                            std::to_string(timeline) + " to reach " + std::to_string(value);
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  FERRY_CLIENT_RETURN_IF_ERROR(CheckTimeline(doing, timeline));
  OpenStream on;
  FERRY_CLIENT_RETURN_IF_ERROR(Open(stream, doing, &on));
  Timelines& timelines = session->timelines();
  if (timelines.Over(timeline).value >= value) return nullptr;
  if (session->IsOver()) return session->LastLoss();  // nobody will advance the word any more
  bool queued = false;
  FERRY_CLIENT_RETURN_IF_ERROR(Park(on, *session,
                                    {on.name(), &timelines.pages().over[timeline].value, value,
                                     session, static_cast<int>(timeline)},
                                    doing, &queued));
  if (queued) {
    // If the session ended meanwhile, it may have released the parked streams before this one was
    // added.
    if (session->IsOver()) session->EndStreams();
    return nullptr;
  }
  const std::string why = OverHangs(*session, timeline, value);
  if (!why.empty()) return WouldDeadlock(doing, why);
  ParkedStreams::Get().CountHostWait();
  const Timelines::Wait wait = timelines.WaitOver(timeline, value, kForever);
  return wait == Timelines::Wait::kReached ? nullptr : session->LastLoss();
}

StatusPtr FireOnStream(ferry_prepared* prepared, ferry_cuda_stream stream, uint64_t* firing) {
  const std::string doing = "queueing a firing of prepared transfers on a stream";
  Session& session = *prepared->session;
  FERRY_CLIENT_RETURN_IF_ERROR(session.CheckMine());
  OpenStream on;
  FERRY_CLIENT_RETURN_IF_ERROR(Open(stream, doing, &on));
  return FirePreparedBy(prepared, firing, [&](const ferry_prepared::Place& place, uint64_t) {
    const uint64_t next = place.fired + 1;
    if (!session.timelines().TellStream(*place.life, next)) return session.LastLoss();
    const ferry_timeline_line& line = session.timelines().pages().prepared_defined[place.number];
    return Write(on, session, line.value, Timelines::PreparedValue(*place.life, next), doing);
  });
}

StatusPtr WaitPreparedOnStream(ferry_prepared* prepared, ferry_cuda_stream stream,
                               uint64_t firing) {
  const std::string doing = "queueing on a stream the wait for firing " + std::to_string(firing) +
                            " of prepared transfers";
  const std::shared_ptr<Session>& session = prepared->session;
  FERRY_CLIENT_RETURN_IF_ERROR(session->CheckMine());
  OpenStream on;
  FERRY_CLIENT_RETURN_IF_ERROR(Open(stream, doing, &on));
  const ferry_prepared::Place place = PlaceOf(*prepared);
  if (place.first_id == 0) return PreparedStatus(prepared);
  // When the stream gets there, the daemon may have gone and come back, and the word may be of its
  // next life.
  Timelines& timelines = session->timelines();
  if (!timelines.TellStream(*place.life, firing)) return session->LastLoss();
  const uint64_t& word = timelines.pages().prepared_over[place.number].value;
  if (timelines.Prepared(*place.life, place.number).value >= firing) return nullptr;
  const uint64_t value = Timelines::PreparedValue(*place.life, firing);
  bool queued = false;
  FERRY_CLIENT_RETURN_IF_ERROR(
      Park(on, *session, {on.name(), &word, value, session, -1}, doing, &queued));
  if (queued) return nullptr;
  const std::string why = PreparedHangs(*prepared, firing);
  if (!why.empty()) return WouldDeadlock(doing, why);
  ParkedStreams::Get().CountHostWait();
  return WaitPrepared(prepared, place, firing, UINT64_MAX);
}

}  // namespace ferry::client
