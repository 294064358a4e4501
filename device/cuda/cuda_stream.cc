// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/cuda_stream.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "device/cuda/cuda_api.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_gather.h"
#include "device/cuda/cuda_kernel.h"

namespace ferry {

namespace {

static_assert(CudaStream::kTables == kGatherTables);

constexpr size_t kReportPage = 4096;

uint64_t BytesOf(const CudaStream::Table& table) { return table.tasks * sizeof(GatherTask); }

}  // namespace

struct CudaStream::Parts {
  explicit Parts(const CudaApi& api) : api(api) {}
  ~Parts() {
    for (const CUstream each : {stream, teller}) {
      if (each != nullptr) api.cuStreamSynchronize(each);
    }
    for (const CUevent event : events) {
      if (event != nullptr) api.cuEventDestroy(event);
    }
    if (passed != nullptr) api.cuEventDestroy(passed);
    for (const CUstream each : {stream, teller}) {
      if (each != nullptr) api.cuStreamDestroy(each);
    }
    if (report_page != nullptr) api.cuMemHostUnregister(report_page);
  }

  // Returns the stream that tells how far `stream` is: it has come to where `stream` is now when
  // what it is given next runs.
  absl::StatusOr<CUstream> Behind() {
    if (teller == nullptr) return stream;
    RETURN_IF_CUDA(api, api.cuEventRecord(passed, stream), "mark a stream");
    RETURN_IF_CUDA(api, api.cuStreamWaitEvent(teller, passed, 0), "follow a stream");
    return teller;
  }

  const CudaApi& api;
  CUstream stream = nullptr;
  // Of a background stream: follows `stream`, and makes the marks and reports. A kernel does not
  // begin before the mark or report that its own stream makes ahead of it is over, which is 2.5 or
  // 3.6 us later (H200); it need not wait for those of another stream.
  CUstream teller = nullptr;
  CUevent passed = nullptr;            // what `teller` waits for next
  std::vector<CUevent> events;         // by number modulo their count
  std::byte* report_page = nullptr;    // if it is registered
  CUdeviceptr report = 0;              // where the GPU sees it
  std::unique_ptr<CudaGather> gather;  // a table for each mark
};

CudaStream::CudaStream(CudaDevice& device)
    : device_(device), parts_(std::make_unique<Parts>(device.api_)) {}

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Make(CudaDevice& device, Options options) {
  const std::string doing = absl::StrCat("make a stream on ", device.info().uuid_text());
  const CudaApi& api = device.api_;
  std::unique_ptr<CudaStream> made(new CudaStream(device));
  ASSIGN_OR_RETURN(
      made->memory_,
      device.Map({MemoryKind::kCudaAllocate, options.staging_bytes + options.table_bytes}, {}));
  made->table_bytes_ = options.table_bytes;
  made->marks_ = options.marks;
  if (options.table_bytes > 0) made->free_[0] = options.table_bytes;
  device.MakeCurrent();
  Parts& parts = *made->parts_;
  int least = 0, greatest = 0;
  RETURN_IF_CUDA(api, api.cuCtxGetStreamPriorityRange(&least, &greatest), doing);
  RETURN_IF_CUDA(api,
                 api.cuStreamCreateWithPriority(&parts.stream, CU_STREAM_NON_BLOCKING,
                                                options.background ? least : greatest),
                 doing);
  if (options.background) {
    // Of the same priority: streams of another one share no queue of the GPU with it, in which they
    // would wait for jobs.
    RETURN_IF_CUDA(
        api, api.cuStreamCreateWithPriority(&parts.teller, CU_STREAM_NON_BLOCKING, least), doing);
    RETURN_IF_CUDA(api, api.cuEventCreate(&parts.passed, CU_EVENT_DISABLE_TIMING), doing);
  }
  // Who queues in the background waits for long, and should not spin.
  const unsigned wait = options.background ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT;
  parts.events.resize(options.marks);
  for (CUevent& event : parts.events) {
    RETURN_IF_CUDA(api, api.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | wait), doing);
  }
  if (options.report_page != nullptr) {
    RETURN_IF_CUDA(
        api,
        api.cuMemHostRegister(options.report_page, kReportPage,
                              CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP),
        doing);
    parts.report_page = options.report_page;
    RETURN_IF_CUDA(api, api.cuMemHostGetDevicePointer(&parts.report, parts.report_page, 0), doing);
  }
  if (!options.kernel) return made;
  absl::StatusOr<std::unique_ptr<CudaGather>> gather = CudaGather::Make(
      api, made->marks_, kPieces + made->staging_bytes() / CudaGather::kTaskBytes + 1,
      CudaGather::kLocalBlocks);
  if (gather.ok()) {
    parts.gather = *std::move(gather);
  } else {
    FERRY_LOG(warn, "gpu.gather", LogFields("uuid", device.info().uuid_text()),
              "small pieces are copied one by one: {}", std::string(gather.status().message()));
  }
  return made;
}

CudaStream::~CudaStream() {
  if (memory_ == nullptr) return;
  MakeCurrent();
  parts_.reset();  // before the context may go
}

const CudaApi& CudaStream::api() const { return parts_->api; }

void CudaStream::MakeCurrent() const { device_.MakeCurrent(); }

void* CudaStream::handle() const { return parts_->stream; }

absl::Status CudaStream::Copy(absl::Span<const CopyPiece> pieces) {
  home_.Check();
  FERRY_CHECK(room() && pieces.size() <= kPieces);
  const CudaApi& api = parts_->api;
  if (parts_->gather != nullptr) {
    RETURN_IF_ERROR(parts_->gather->Launch(parts_->stream, marked_ % marks_, pieces));
    return Mark();
  }
  for (const CopyPiece& piece : pieces) {
    RETURN_IF_CUDA(
        api,
        api.cuMemcpyAsync(reinterpret_cast<uintptr_t>(piece.destination),
                          reinterpret_cast<uintptr_t>(piece.source), piece.size, parts_->stream),
        absl::StrCat("copy ", pieces.size(), " pieces"));
  }
  return Mark();
}

uint64_t CudaStream::AddressOf(const Table& table) const {
  return reinterpret_cast<uintptr_t>(memory_->data()) + staging_bytes() + table.offset;
}

absl::StatusOr<std::optional<CudaStream::Table>> CudaStream::MakeTable(
    absl::Span<const CopyPiece> pieces, bool gathers) {
  home_.Check();
  FERRY_CHECK(room() && !pieces.empty() && pieces.size() <= kPieces);
  if (parts_->gather == nullptr) return std::nullopt;
  Table table;
  table.gathers = gathers;
  table.tasks = static_cast<uint32_t>(CudaGather::TasksOf(pieces));
  const auto place = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& hole) { return hole.second >= BytesOf(table); });
  if (place == free_.end()) return std::nullopt;
  table.offset = place->first;
  const uint64_t left = place->second - BytesOf(table);
  free_.erase(place);
  if (left > 0) free_[table.offset + BytesOf(table)] = left;
  absl::Status queued =
      parts_->gather->Upload(parts_->stream, marked_ % marks_, pieces, AddressOf(table)).status();
  if (queued.ok()) queued = Mark();
  if (queued.ok()) return table;
  FreeTable(table);  // what comes there next is queued behind it
  return queued;
}

void CudaStream::FreeTable(const Table& table) {
  home_.Check();
  auto hole = free_.emplace(table.offset, BytesOf(table)).first;
  if (const auto next = std::next(hole);
      next != free_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    free_.erase(next);
  }
  if (hole == free_.begin()) return;
  if (const auto before = std::prev(hole); before->first + before->second == hole->first) {
    before->second += hole->second;
    free_.erase(hole);
  }
}

absl::Status CudaStream::Copy(absl::Span<const TableAt> tables) {
  home_.Check();
  FERRY_CHECK(!tables.empty() && tables.size() <= kTables);
  GatherTables launch;
  uint64_t end = 0;
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto& [table, distance] = tables[i];
    end += table.tasks;
    launch.tables[i] = {AddressOf(table), end, table.gathers ? distance : 0,
                        table.gathers ? 0 : distance};
  }
  return parts_->gather->LaunchTables(parts_->stream, launch, tables.size());
}

absl::Status CudaStream::Zero(std::byte* begin, size_t bytes) {
  home_.Check();
  RETURN_IF_CUDA(
      parts_->api,
      parts_->api.cuMemsetD8Async(reinterpret_cast<uintptr_t>(begin), 0, bytes, parts_->stream),
      absl::StrCat("clear ", bytes, " bytes"));
  return absl::OkStatus();
}

absl::Status CudaStream::CopyBytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  home_.Check();
  RETURN_IF_CUDA(
      parts_->api,
      parts_->api.cuMemcpyAsync(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                bytes, parts_->stream),
      absl::StrCat("copy ", bytes, " bytes"));
  return absl::OkStatus();
}

absl::Status CudaStream::Store(std::byte* word, uint32_t value) {
  home_.Check();
  RETURN_IF_CUDA(
      parts_->api,
      parts_->api.cuMemsetD32Async(reinterpret_cast<uintptr_t>(word), value, 1, parts_->stream),
      "store a word");
  return absl::OkStatus();
}

uint64_t CudaStream::report_address() const { return parts_->report; }

absl::Status CudaStream::Report(uint64_t value) {
  home_.Check();
  FERRY_CHECK(parts_->report_page != nullptr);
  ASSIGN_OR_RETURN(const CUstream teller, parts_->Behind());
  // By default all that was written before is seen before the word is.
  RETURN_IF_CUDA(parts_->api,
                 parts_->api.cuStreamWriteValue64(teller, parts_->report, value,
                                                  CU_STREAM_WRITE_VALUE_DEFAULT),
                 "report how far a stream is");
  return absl::OkStatus();
}

absl::Status CudaStream::Launch(const CudaKernel& kernel, uint64_t blocks, uint32_t threads,
                                absl::Span<void* const> arguments, bool beside_copies) {
  home_.Check();
  CUlaunchAttribute early = {};
  early.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  early.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config = {};
  config.gridDimX = static_cast<unsigned>(blocks);
  config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = threads;
  config.blockDimY = config.blockDimZ = 1;
  if (beside_copies) config.sharedMemBytes = kernel.SharedBesideCopies(threads);
  config.hStream = parts_->stream;
  config.attrs = &early;
  config.numAttrs = 1;
  RETURN_IF_CUDA(parts_->api,
                 parts_->api.cuLaunchKernelEx(&config, kernel.function_,
                                              const_cast<void**>(arguments.data()), nullptr),
                 absl::StrCat("launch ", blocks, " blocks of ", threads, " threads"));
  return absl::OkStatus();
}

absl::Status CudaStream::Mark() {
  home_.Check();
  FERRY_CHECK(room());
  ASSIGN_OR_RETURN(const CUstream teller, parts_->Behind());
  RETURN_IF_CUDA(parts_->api, parts_->api.cuEventRecord(parts_->events[marked_ % marks_], teller),
                 "mark a stream");
  ++marked_;
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CudaStream::Reached() {
  home_.Check();
  for (; reached_ < marked_; ++reached_) {
    const CUresult result = parts_->api.cuEventQuery(parts_->events[reached_ % marks_]);
    if (result == CUDA_ERROR_NOT_READY) break;
    RETURN_IF_CUDA(parts_->api, result, "look at a mark of a stream");
  }
  return reached_;
}

absl::Status CudaStream::AwaitMark(uint64_t number) {
  home_.Check();
  FERRY_CHECK(number <= marked_);
  if (number > reached_) {
    RETURN_IF_CUDA(parts_->api,
                   parts_->api.cuEventSynchronize(parts_->events[(number - 1) % marks_]),
                   "await a mark of a stream");
  }
  return Reached().status();
}

absl::Status CudaStream::Await() {
  home_.Check();
  RETURN_IF_CUDA(parts_->api, parts_->api.cuStreamSynchronize(parts_->stream), "await a stream");
  return absl::OkStatus();
}

absl::Status CudaStream::Look() {
  home_.Check();
  const CUresult result = parts_->api.cuStreamQuery(parts_->stream);
  if (result == CUDA_ERROR_NOT_READY) return absl::OkStatus();
  RETURN_IF_CUDA(parts_->api, result, "look at a stream");
  return absl::OkStatus();
}

uint64_t CudaStream::FreeBytes() const {
  size_t free = 0, total = 0;
  return parts_->api.cuMemGetInfo(&free, &total) == CUDA_SUCCESS ? free : 0;
}

}  // namespace ferry
