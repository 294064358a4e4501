// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/run/gpu_machine.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/executor.h"
#include "base/status.h"

namespace ferry::compute {
namespace {

constexpr int kLaunchesOfPart = 8;
// How long a thread looks for the end of a step before it sleeps: a thread that sleeps in the
// driver is often 100 us late, which the transfer waits for.
constexpr absl::Duration kLooking = absl::Microseconds(500);
// Then it naps, and looks again, for a sixteenth of what it has waited at a time. A thread whose
// run may still grow never sleeps in the driver: nothing wakes it there when there is more to
// queue.
constexpr absl::Duration kNapping = absl::Milliseconds(5);
constexpr absl::Duration kShortestNap = absl::Microseconds(50);
constexpr absl::Duration kLongestNap = absl::Milliseconds(1);

// How many launches a command counts as: a large product takes a GPU as long as many others do, and
// a transfer is none of this stream's.
int LaunchesOf(const GpuCommand& command) {
  using Kind = GpuCommand::Kind;
  if (command.kind == Kind::kSend || command.kind == Kind::kReceive) return 0;
  if (command.kind != Kind::kProduct) return 1;
  constexpr double kTermsOfLaunch = 0x1p36;  // some 0.2 ms of 16-bit factors on an H200
  const GpuProduct& product = command.product;
  const double terms = static_cast<double>(product.batches) * static_cast<double>(product.m) *
                       static_cast<double>(product.n) * static_cast<double>(product.k);
  return 1 + static_cast<int>(std::min(terms / kTermsOfLaunch, kLaunchesOfPart - 1.0));
}

// A word that the GPU writes.
uint64_t WordAt(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE);
}

}  // namespace

// One call of Run.
struct GpuMachine::Running {
  const Work& work;
  bool full = true;       // its launches are those of full kernels
  bool begun = false;     // it has queued something, or is about to
  bool launched = false;  // its first kernel is queued

  std::byte* AddressOf(const GpuPlace& place) const {
    if (place.kind == GpuPlace::Kind::kBuffer) {
      return work.buffers[place.index].data() + place.offset;
    }
    return work.scratch.data() + ScratchOffsetOf(work.program.plan(), place);
  }
};

absl::Status GpuMachine::Open() {
  if (stream_ != nullptr) return absl::OkStatus();
  CudaStream::Options options;
  options.staging_bytes = 256;
  options.kernel = false;
  options.background = true;
  options.marks = kLaunchesAhead + 1;  // each part has one, and at least one launch
  options.report_page = page_->bytes;
  ASSIGN_OR_RETURN(stream_, CudaStream::Make(device_, options));
  return absl::OkStatus();
}

void GpuMachine::Close() {
  home_.Check();
  CloseStream();
}

void GpuMachine::CloseStream() {
  if (stream_ == nullptr) return;
  stream_->MakeCurrent();
  kernels_.clear();
  products_.reset();
  stream_.reset();
  parts_.clear();
  untold_.clear();
  queued_ = 0;
}

absl::StatusOr<std::unique_ptr<DeviceMemory>> GpuMachine::Allocate(uint64_t bytes) {
  home_.Check();
  RETURN_IF_ERROR(Open());
  return device_.Map({MemoryKind::kCudaAllocate, bytes}, {});
}

void GpuMachine::Begin(Running& run) {
  if (std::exchange(run.begun, true)) return;
  begun_.fetch_add(1, std::memory_order_release);
  if (run.full) DropFirstTiers(run.work.program);
}

bool GpuMachine::HasUntold(const Running& run) const {
  return run.begun && !untold_.empty() && untold_.back().run == begun();
}

absl::StatusOr<const CudaKernel*> GpuMachine::KernelOf(const CompiledKernel& code) {
  std::unique_ptr<CudaKernel>& kernel = kernels_[&code];
  if (kernel == nullptr) {
    absl::StatusOr<std::unique_ptr<CudaKernel>> loaded =
        CudaKernel::Load(*stream_, code.cubin, kStoredEntry);
    if (!loaded.ok()) {
      kernels_.erase(&code);
      return loaded.status();
    }
    kernel = *std::move(loaded);
  }
  return kernel.get();
}

void GpuMachine::DropFirstTiers(const GpuProgram& program) {
  if (program.first_codes().empty() || over() + 1 != begun()) return;
  for (const CompiledKernel* code : program.first_codes()) kernels_.erase(code);
}

absl::Status GpuMachine::Run(const Work& work, Aside& aside) {
  home_.Check();
  RETURN_IF_ERROR(Open());
  stream_->MakeCurrent();
  Running run{work, work.program.full()};
  const size_t from = std::exchange(aside.put, false) ? aside.step : work.begin;
  const absl::Status queued = QueueSteps(run, from, aside);
  if (!run.begun) return queued;
  const bool told = work.step_over && !HasUntold(run);  // then all of it is over
  if (queued.ok() && !aside.put && work.may_lag && !told && Report()) return absl::OkStatus();
  // Each is told of at once, not when all are over: transfers begin then.
  while (!untold_.empty() && AwaitStep(run, std::nullopt).ok()) continue;
  // What was queued uses the memory that the caller has lent, however the run ends.
  absl::Status status = queued;
  status.Update(Await());
  return status;
}

absl::Status GpuMachine::QueueSteps(Running& run, size_t step, Aside& aside) {
  const Work& work = run.work;
  const size_t from = step;
  while (true) {
    const size_t end = work.end();
    if (step >= end) {
      const bool lags = work.may_lag && end == work.program.plan().plan.steps.size();
      if (lags || !HasUntold(run)) return absl::OkStatus();
      RETURN_IF_ERROR(AwaitStep(run, end));
      continue;
    }
    if (step > from && aside.wanted && aside.wanted()) {
      aside.put = true;
      aside.step = step;
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(QueueAll(run, work.program.CommandsOf(step, step + 1)));
    if (work.step_over) RETURN_IF_ERROR(EndStep(run, step));
    ++step;
  }
}

uint64_t GpuMachine::over() const {
  return std::max(WordAt(page_->bytes), awaited_.load(std::memory_order_acquire));
}

uint64_t GpuMachine::current() const {
  return std::max(over() + 1, WordAt(page_->bytes + kBegunAt));
}

bool GpuMachine::Report() {
  // Where the GPU cannot report, the caller of Run waits.
  return stream_->Report(begun()).ok();
}

absl::Status GpuMachine::QueueAll(Running& run, absl::Span<const GpuCommand> commands) {
  for (const GpuCommand& command : commands) {
    if (run.work.may_go_on && !run.work.may_go_on()) {
      return Error(absl::StatusCode::kCancelled, Reason::kCancelled,
                   absl::StrCat("stopped before step ", command.step, " of ",
                                run.work.program.plan().plan.steps.size()));
    }
    RETURN_IF_ERROR(Queue(run, command));
    queued_ += LaunchesOf(command);
    if (queued_ < kLaunchesOfPart) continue;
    RETURN_IF_ERROR(EndPart());
    ASSIGN_OR_RETURN(bool full, IsFull());
    while (full) {
      RETURN_IF_ERROR(stream_->AwaitMark(parts_.front().mark));
      RETURN_IF_ERROR(Tell());  // transfers of earlier runs begin then
      ASSIGN_OR_RETURN(full, IsFull());
    }
  }
  return absl::OkStatus();
}

absl::Status GpuMachine::Queue(Running& run, const GpuCommand& command) {
  using Kind = GpuCommand::Kind;
  const Kind kind = command.kind;
  if (kind != Kind::kSend && kind != Kind::kReceive) Begin(run);
  if (kind == Kind::kLaunch || kind == Kind::kCopy || kind == Kind::kProduct) ++launches_;
  switch (command.kind) {
    case GpuCommand::Kind::kLaunch:
      return QueueLaunch(run, command);
    case GpuCommand::Kind::kCopy:
      return stream_->CopyBytes(run.AddressOf(command.to), run.AddressOf(command.from),
                                command.bytes);
    case GpuCommand::Kind::kRepeat:
      for (int64_t trip = 0; trip < command.trips; ++trip) {
        if (command.count) {
          RETURN_IF_ERROR(
              stream_->Store(run.AddressOf(*command.count), static_cast<uint32_t>(trip)));
        }
        RETURN_IF_ERROR(QueueAll(run, command.body));
      }
      return absl::OkStatus();
    case GpuCommand::Kind::kSend:
    case GpuCommand::Kind::kReceive:
      return absl::OkStatus();  // whoever is told of the step begins the transfer
    case GpuCommand::Kind::kProduct:
      return QueueProduct(run, command.product);
  }
  return absl::OkStatus();
}

absl::Status GpuMachine::QueueLaunch(Running& run, const GpuCommand& command) {
  const GpuProgram::Launch launch = run.work.program.LaunchOf(command, run.full);
  ASSIGN_OR_RETURN(const CudaKernel* kernel, KernelOf(*launch.code));
  // Values first: the pointers to them must stay.
  std::vector<uint64_t> values;
  values.reserve(launch.arguments.size() + 2);
  const bool first = !std::exchange(run.launched, true);
  values.push_back(first ? stream_->report_address() + kBegunAt : 0);
  values.push_back(begun());
  std::vector<void*> arguments{&values[0], &values[1]};
  for (const GpuArgument& argument : launch.arguments) {
    values.push_back(argument.place ? reinterpret_cast<uint64_t>(run.AddressOf(*argument.place))
                                    : static_cast<uint64_t>(argument.number));
    arguments.push_back(&values.back());  // little-endian: the low 4 bytes come first
  }
  return stream_->Launch(*kernel, launch.blocks, launch.threads, arguments,
                         run.work.receives && device_.copying());
}

absl::Status GpuMachine::QueueProduct(Running& run, const GpuProduct& product) {
  if (products_ == nullptr) {
    FERRY_CHECK(library_ != nullptr);  // else there is no program with one
    ASSIGN_OR_RETURN(products_, CublasLtProducts::Make(*library_));
  }
  const auto address = [&](const std::optional<GpuPlace>& place) {
    return place ? run.AddressOf(*place) : nullptr;
  };
  return products_->Queue(product,
                          {.left = run.AddressOf(product.left.place),
                           .right = run.AddressOf(product.right.place),
                           .result = run.AddressOf(product.result.place),
                           .workspace = run.AddressOf(product.workspace),
                           .left_scales = address(product.left.scales),
                           .right_scales = address(product.right.scales),
                           .factors = address(product.factors)},
                          stream_->handle());
}

absl::Status GpuMachine::EndPart() {
  if (queued_ == 0) return absl::OkStatus();
  RETURN_IF_ERROR(stream_->Mark());
  parts_.push_back({stream_->marked(), std::exchange(queued_, 0)});
  return absl::OkStatus();
}

absl::StatusOr<bool> GpuMachine::IsFull() {
  ASSIGN_OR_RETURN(const uint64_t reached, stream_->Reached());
  while (!parts_.empty() && parts_.front().mark <= reached) parts_.pop_front();
  int launches = 0;
  for (const Part& part : parts_) launches += part.launches;
  return launches > kLaunchesAhead;
}

absl::Status GpuMachine::EndStep(Running& run, size_t step) {
  const absl::Span<const GpuCommand> commands = run.work.program.CommandsOf(step, step + 1);
  const bool sends = !commands.empty() && commands.front().kind == GpuCommand::Kind::kSend;
  // What it sends an earlier run may write.
  if (!run.begun && sends && over() < begun()) Begin(run);
  if (!run.begun) {
    run.work.step_over(step);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(EndPart());
  untold_.push_back({stream_->marked(), begun(), step, run.work.step_over});
  RETURN_IF_ERROR(Tell());
  ASSIGN_OR_RETURN(bool full, IsFull());
  while (full && !untold_.empty()) {
    RETURN_IF_ERROR(AwaitStep(run, std::nullopt));
    ASSIGN_OR_RETURN(full, IsFull());
  }
  return absl::OkStatus();
}

absl::Status GpuMachine::AwaitStep(Running& run, std::optional<size_t> end) {
  const size_t untold = untold_.size();
  const Work& work = run.work;
  const bool grows = end && *end < work.program.plan().plan.steps.size();
  const absl::Time since = MonotonicNow();
  while (true) {
    RETURN_IF_ERROR(Tell());
    if (untold_.size() < untold || (grows && work.end() > *end)) return absl::OkStatus();
    const absl::Duration waited = MonotonicNow() - since;
    if (waited < kLooking) continue;
    const bool sleeps = grows ? work.may_go_on && !work.may_go_on() : waited >= kNapping;
    if (sleeps) break;
    absl::SleepFor(std::clamp(waited / 16, kShortestNap, kLongestNap));
  }
  RETURN_IF_ERROR(stream_->AwaitMark(untold_.front().mark));
  return Tell();
}

absl::Status GpuMachine::Tell() {
  home_.Check();
  if (untold_.empty()) return absl::OkStatus();
  stream_->MakeCurrent();
  const absl::StatusOr<uint64_t> reached = stream_->Reached();
  if (!reached.ok()) {
    untold_.clear();  // no step is told of after its run has failed
    return reached.status();
  }
  while (!untold_.empty() && untold_.front().mark <= *reached) {
    const Untold told = std::move(untold_.front());
    untold_.pop_front();
    told.step_over(told.step);
  }
  return absl::OkStatus();
}

absl::Status GpuMachine::Look() {
  home_.Check();
  if (over() >= begun()) return absl::OkStatus();
  stream_->MakeCurrent();
  const absl::Status seen = stream_->Look();
  if (!seen.ok()) untold_.clear();
  return seen;
}

absl::Status GpuMachine::AwaitQueued() {
  RETURN_IF_ERROR(stream_->Await());
  // The marks are made by a stream that follows a little later.
  const absl::Time until = MonotonicNow() + kLooking;
  ASSIGN_OR_RETURN(uint64_t reached, stream_->Reached());
  while (reached < stream_->marked() && MonotonicNow() < until) {
    ASSIGN_OR_RETURN(reached, stream_->Reached());
  }
  RETURN_IF_ERROR(stream_->AwaitMark(stream_->marked()));
  parts_.clear();
  queued_ = 0;
  return absl::OkStatus();
}

absl::Status GpuMachine::Await() {
  home_.Check();
  if (over() < begun()) {
    stream_->MakeCurrent();
    const absl::Status awaited = AwaitQueued();
    if (!awaited.ok()) untold_.clear();
    RETURN_IF_ERROR(awaited);
    awaited_.store(begun(), std::memory_order_release);
  }
  return Tell();
}

}  // namespace ferry::compute
