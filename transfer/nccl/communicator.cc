// SPDX-License-Identifier: Apache-2.0
#include "transfer/nccl/communicator.h"

#include <string.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/status.h"

namespace ferry {
namespace {

// What a first send and receive connects with.
constexpr size_t kWarmBytes = size_t{64} << 10;
// Between two looks at whether it is over: nothing tells.
constexpr absl::Duration kLook = absl::Microseconds(200);

absl::Status Ended(absl::string_view doing) {
  return Error(absl::StatusCode::kAborted, Reason::kCommAborted,
               absl::StrCat(doing, ": the communicator was ended meanwhile"));
}

absl::Status Unavailable(const absl::Status& why) {
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable, why.message());
}

}  // namespace

Communicator::Communicator(const NcclApi& api, CudaDevice& device, int rank, int max_ctas)
    : api_(api), device_(device), rank_(rank), max_ctas_(max_ctas) {}

Communicator::~Communicator() = default;

bool Communicator::Enter() {
  MutexLock lock(mutex_);
  if (state_ == State::kEnded) return false;
  ++inside_;
  return true;
}

void Communicator::Leave() {
  MutexLock lock(mutex_);
  --inside_;
  left_.notify_all();
}

bool Communicator::AwaitEmpty(absl::Duration patience) {
  const absl::Time until = MonotonicNow() + patience;
  MutexLock lock(mutex_);
  while (inside_ > 0) {
    const absl::Duration left = until - MonotonicNow();
    if (left <= absl::ZeroDuration()) return false;
    left_.wait_for(mutex_, absl::ToChronoNanoseconds(left));
  }
  return true;
}

void Communicator::AwaitOut() {
  MutexLock lock(mutex_);
  while (inside_ > 0 || opening_) left_.wait(mutex_);
}

absl::StatusOr<std::string> Communicator::MakeId() {
  ncclUniqueId id = {};
  if (!Enter()) return Ended("make a unique id");
  const ncclResult_t made = api_.GetUniqueId(&id);
  Leave();
  if (made != kNcclSuccess) return Unavailable(NcclError(api_, made, "make a unique id"));
  return std::string(id.internal, sizeof(id.internal));
}

absl::StatusOr<Communicator::Opened> Communicator::Open(const std::string& unique_id) {
  {
    MutexLock lock(mutex_);
    if (state_ == State::kEnded) return Ended("open");
    opening_ = true;
  }
  Opened opened;
  const absl::Status status = OpenAndWarm(unique_id, opened);
  {
    MutexLock lock(mutex_);
    opening_ = false;
    left_.notify_all();
  }
  State opening = State::kOpening;
  if (status.ok() && !state_.compare_exchange_strong(opening, State::kOpen)) return Ended("open");
  RETURN_IF_ERROR(status);
  return opened;
}

absl::Status Communicator::OpenAndWarm(const std::string& unique_id, Opened& opened) {
  ncclUniqueId id = {};
  if (unique_id.size() != sizeof(id.internal)) {
    return Error(
        absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
        absl::StrCat("a unique id of ", unique_id.size(), " bytes, not ", sizeof(id.internal)));
  }
  memcpy(id.internal, unique_id.data(), sizeof(id.internal));
  const absl::Time begun = MonotonicNow();
  absl::StatusOr<std::unique_ptr<CudaStream>> stream =
      CudaStream::Make(device_, {2 * kWarmBytes, /*kernel=*/false});
  if (!stream.ok()) return Unavailable(stream.status());
  warm_ = *std::move(stream);
  warm_->MakeCurrent();
  const uint64_t before = warm_->FreeBytes();
  if (!Enter()) return Ended("open");
  absl::Status status = OpenInside(id);
  Leave();
  if (status.ok()) status = AwaitWarm();
  if (!status.ok()) return state_ == State::kEnded ? status : Unavailable(status);
  const uint64_t after = warm_->FreeBytes();
  opened.bytes = before > after ? before - after : 0;
  opened.took = MonotonicNow() - begun;
  return absl::OkStatus();
}

absl::Status Communicator::OpenInside(const ncclUniqueId& id) {
  ncclConfig_t config = BlockingConfig(max_ctas_);
  const ncclResult_t made = api_.CommInitRankConfig(&comm_, 2, id, rank_, &config);
  if (made != kNcclSuccess) return NcclError(api_, made, "open a communicator");
  initialized_ = true;
  // Both ways, because NCCL connects a direction with its first bytes.
  std::byte* const memory = warm_->staging();
  RETURN_IF_ERROR(warm_->Zero(memory, 2 * kWarmBytes));
  RETURN_IF_ERROR(CallGroup(
      warm_->handle(), {{true, memory, kWarmBytes}, {false, memory + kWarmBytes, kWarmBytes}}));
  return warm_->Mark();
}

// When it is over here, the other rank is open as well. Outside NCCL but for questions, so that
// nothing has to be freed: the stream goes on by itself when the communicator is aborted.
absl::Status Communicator::AwaitWarm() {
  while (true) {
    ASSIGN_OR_RETURN(const uint64_t reached, warm_->Reached());
    RETURN_IF_ERROR(AsyncError("warm up"));
    if (state_ == State::kEnded) return Ended("warm up");
    if (reached == warm_->marked()) return absl::OkStatus();
    absl::SleepFor(kLook);
  }
}

absl::Status Communicator::CallGroup(void* stream, absl::Span<const Operation> operations) {
  ncclResult_t result = api_.GroupStart();
  for (const Operation& operation : operations) {
    if (result != kNcclSuccess) break;
    result =
        operation.send
            ? api_.Send(operation.memory, operation.bytes, kNcclBytes, 1 - rank_, comm_, stream)
            : api_.Recv(operation.memory, operation.bytes, kNcclBytes, 1 - rank_, comm_, stream);
  }
  const ncclResult_t ended = api_.GroupEnd();  // or the thread stays in the group
  if (result == kNcclSuccess) result = ended;
  if (result == kNcclSuccess) return absl::OkStatus();
  return NcclError(api_, result, absl::StrCat("launch ", operations.size(), " operations"));
}

absl::Status Communicator::Launch(const CudaStream& stream,
                                  absl::Span<const Operation> operations) {
  if (!Enter()) return Ended("launch a group");
  stream.MakeCurrent();
  const absl::Status status = CallGroup(stream.handle(), operations);
  Leave();
  return status;
}

absl::Status Communicator::AsyncError(absl::string_view doing) {
  if (!Enter()) return absl::OkStatus();
  ncclResult_t noticed = kNcclSuccess;
  const ncclResult_t asked = api_.CommGetAsyncError(comm_, &noticed);
  Leave();
  if (asked != kNcclSuccess) noticed = asked;
  if (noticed == kNcclSuccess || noticed == kNcclInProgress) return absl::OkStatus();
  return NcclError(api_, noticed, doing);
}

void Communicator::Reap() {
  FERRY_CHECK(state_ == State::kEnded);
  const auto handle = [this] { return __atomic_load_n(&comm_, __ATOMIC_ACQUIRE); };
  bool empty = AwaitEmpty(kGrace);
  // An opener that has no communicator yet, and so cannot be freed: it is about to have one.
  while (!empty && handle() == nullptr) empty = AwaitEmpty(absl::Milliseconds(1));
  if (const ncclComm_t comm = handle(); comm != nullptr) {
    // What is stuck comes out by a revocation, and only then what it is stuck in is freed.
    if (!empty && initialized_ && api_.CommRevoke != nullptr &&
        api_.CommRevoke(comm, 0) == kNcclSuccess) {
      empty = AwaitEmpty(absl::Seconds(1));
    }
    // Never ncclCommDestroy: over NVLink it waits for the other rank's, for ever if that is
    // stopped.
    const ncclResult_t ended = api_.CommAbort(comm);
    if (ended != kNcclSuccess) {
      FERRY_LOG(warn, "comm.reap", LogFields("uuid", device_.info().uuid_text()), "{}",
                std::string(NcclError(api_, ended, "end a communicator").message()));
    }
  }
  AwaitOut();
  warm_.reset();
}

}  // namespace ferry
