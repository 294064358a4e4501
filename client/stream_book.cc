// SPDX-License-Identifier: Apache-2.0
#include "client/stream_book.h"

#include <functional>
#include <string_view>
#include <utility>

#include "client/cuda_api.h"
#include "client/parked_streams.h"
#include "client/queued_stores.h"

namespace ferry::client {
namespace {

uint64_t Mix(uint64_t hash, uint64_t more) { return (hash ^ more) * 0x9e3779b97f4a7c15 + 1; }

uint64_t LastValue(const StreamBook::Posted& posted) {
  return posted.first_value + posted.transfers.size() - 1;
}

}  // namespace

StreamBook::~StreamBook() {
  if (!timelines_->mapped()) return;
  ParkedStreams::Get().Forget(&timelines_->pages(), timelines_->page_bytes());
  QueuedStores::Get().Forget(&timelines_->pages(), timelines_->page_bytes());
  if (keeps_pages_) {
    timelines_->StayMapped();
    return;
  }
  Cuda* cuda;
  if (registered_in_ == nullptr || Cuda::Get(&cuda) != nullptr) return;
  // The thread that releases the session last need not have a context. Pages that stay registered
  // would fail the next session whose pages are at their address.
  const CurrentContext current(cuda, registered_in_);
  cuda->cuMemHostUnregister(&timelines_->pages());
}

void StreamBook::KeepPages() {
  std::lock_guard lock(mutex_);
  keeps_pages_ = true;
}

StatusPtr StreamBook::Register(const std::string& doing) {
  if (registered_in_ != nullptr) return nullptr;
  Cuda* cuda;
  CUdevice device;
  CUcontext kept;
  FERRY_CLIENT_RETURN_IF_ERROR(Cuda::Get(&cuda));
  FERRY_CLIENT_CUDA(cuda, doing, cuCtxGetDevice, &device);
  // Registered in the context that the library keeps, for all contexts: the application may destroy
  // its own while it uses the session, and with it whatever was registered there.
  FERRY_CLIENT_RETURN_IF_ERROR(cuda->PrimaryContext(device, doing, &kept));
  const CurrentContext current(cuda, kept);
  FERRY_CLIENT_CUDA(cuda, doing, cuMemHostRegister, &timelines_->pages(), timelines_->page_bytes(),
                    CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  registered_in_ = kept;
  return nullptr;
}

StatusPtr StreamBook::DeviceAddress(const void* context, const void* word, const std::string& doing,
                                    uint64_t* address) {
  Cuda* cuda;
  FERRY_CLIENT_RETURN_IF_ERROR(Cuda::Get(&cuda));
  void* const begin = &timelines_->pages();
  std::lock_guard lock(mutex_);
  const auto [entry, added] = pages_.try_emplace(context, 0);
  if (added) {
    CUdeviceptr pages = 0;
    StatusPtr error = Register(doing);
    if (error == nullptr) {
      error = cuda->Check(cuda->cuMemHostGetDevicePointer(&pages, begin, 0), doing,
                          "cuMemHostGetDevicePointer");
    }
    if (error != nullptr) {
      pages_.erase(entry);
      return error;
    }
    entry->second = pages;
  }
  *address = entry->second + static_cast<uint64_t>(static_cast<const char*>(word) -
                                                   static_cast<const char*>(begin));
  return nullptr;
}

void StreamBook::Record(const PostBatch& batch, const PostAnswer& answer) {
  Posted posted{answer.first_transfer_id,
                answer.first_over_value,
                batch.direction == Direction::kReceive,
                {},
                {}};
  posted.transfers.reserve(batch.count);
  const std::string_view domain(static_cast<const char*>(batch.options->domain),
                                batch.options->domain_bytes);
  const size_t of_domain = std::hash<std::string_view>()(domain);
  for (size_t i = 0; i < batch.count; ++i) {
    const ferry_transfer& transfer = batch.transfers[i];
    // Most batches have one remote device, or few.
    if (posted.remotes.empty() || posted.remotes.back() != transfer.remote_device) {
      posted.remotes.push_back(transfer.remote_device);
    }
    const uint64_t from = posted.receives ? transfer.remote_device : batch.device;
    const uint64_t to = posted.receives ? batch.device : transfer.remote_device;
    const std::string_view key(static_cast<const char*>(transfer.key), transfer.key_bytes);
    Transfer& added = posted.transfers.emplace_back();
    added.name = Mix(Mix(Mix(of_domain, from), to), std::hash<std::string_view>()(key));
    if (transfer.has_defined_at == 0) continue;
    added.counter = transfer.defined_timeline;
    added.defined_at = transfer.defined_value;
  }
  const uint32_t timeline = batch.options->over_timeline;
  const uint64_t over = timelines_->Over(timeline).value;
  std::lock_guard lock(mutex_);
  std::deque<Posted>& all = posted_[timeline];
  while (!all.empty() && LastValue(all.front()) <= over) all.pop_front();
  all.push_back(std::move(posted));
}

std::vector<StreamBook::Posted> StreamBook::Open(uint32_t timeline, uint64_t value) {
  const uint64_t over = timelines_->Over(timeline).value;
  std::vector<Posted> open;
  std::lock_guard lock(mutex_);
  for (const Posted& posted : posted_[timeline]) {
    if (posted.first_value <= value && LastValue(posted) > over) open.push_back(posted);
  }
  return open;
}

}  // namespace ferry::client
