// SPDX-License-Identifier: Apache-2.0
#include "transfer/mapped/link_page.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "device/memfd.h"
#include "transfer/mapped/shared_eventfd.h"

namespace ferry {
namespace {
constexpr uint64_t kCacheLine = 64;
}  // namespace

LinkPage::LinkPage(std::unique_ptr<HostMapping> mapping, End end)
    : mapping_(std::move(mapping)), own_(end) {}

absl::StatusOr<std::unique_ptr<LinkPage>> LinkPage::Create() {
  const auto failed = [] {
    return ErrnoError(absl::StatusCode::kResourceExhausted, Reason::kDeviceMemory,
                      "making the page that is shared with a peer daemon", errno);
  };
  UniqueFd memfd(memfd_create("ferry-link", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.valid() || ftruncate(memfd.get(), kBytes) != 0) return failed();
  if (fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return failed();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<HostMapping> mapping,
                   HostMapping::Map(std::move(memfd), kBytes, HostMapping::Access::kReadWrite));
  std::unique_ptr<LinkPage> page(new LinkPage(std::move(mapping), End::kMaker));
  if (SharedEventfd::Get() == nullptr) return page;
  for (UniqueFd& doorbell : page->doorbells_) {
    doorbell.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!doorbell.valid()) return failed();
  }
  return page;
}

absl::StatusOr<std::unique_ptr<LinkPage>> LinkPage::Map(UniqueFd&& memfd) {
  RETURN_IF_ERROR(CheckMemfd(memfd.get(), kPageBytes));
  ASSIGN_OR_RETURN(std::unique_ptr<HostMapping> mapping,
                   HostMapping::Map(std::move(memfd), kPageBytes, HostMapping::Access::kReadWrite));
  return std::unique_ptr<LinkPage>(new LinkPage(std::move(mapping), End::kTaker));
}

absl::StatusOr<std::unique_ptr<LinkPage>> LinkPage::Map(UniqueFd&& memfd,
                                                        UniqueFd&& makers_doorbell,
                                                        UniqueFd&& takers_doorbell) {
  SharedEventfd* const eventfds = SharedEventfd::Get();
  if (eventfds == nullptr) return Map(std::move(memfd));
  RETURN_IF_ERROR(CheckMemfd(memfd.get(), kBytes));
  // To ring them now wakes nobody for nothing but once.
  if (!eventfds->Add(makers_doorbell.get()) || !eventfds->Add(takers_doorbell.get())) {
    return Error(absl::StatusCode::kInvalidArgument, Reason::kFieldInvalid,
                 "mapping the page that a peer daemon shares: its doorbells are not eventfds");
  }
  ASSIGN_OR_RETURN(std::unique_ptr<HostMapping> mapping,
                   HostMapping::Map(std::move(memfd), kBytes, HostMapping::Access::kReadWrite));
  std::unique_ptr<LinkPage> page(new LinkPage(std::move(mapping), End::kTaker));
  page->doorbells_[0] = std::move(makers_doorbell);
  page->doorbells_[1] = std::move(takers_doorbell);
  return page;
}

uint32_t* LinkPage::Revocation(End end) const {
  return reinterpret_cast<uint32_t*>(mapping_->data() + static_cast<uint64_t>(end) * kCacheLine);
}

uint32_t* LinkPage::Parked(End end) const {
  return reinterpret_cast<uint32_t*>(mapping_->data() +
                                     (2 + static_cast<uint64_t>(end)) * kCacheLine);
}

LinkPage::Slot& LinkPage::slot(uint32_t number) const {
  FERRY_CHECK(has_slots() && number >= 1 && number <= kPreparedSlots);
  return reinterpret_cast<Slot*>(mapping_->data() + kPageBytes)[number - 1];
}

Doorbell LinkPage::doorbell() const {
  return {Parked(own_), doorbells_[static_cast<size_t>(own_)].get()};
}

void LinkPage::Ring() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (__atomic_load_n(Parked(other()), __ATOMIC_SEQ_CST) != 0) {
    SharedEventfd::Get()->Add(doorbells_[static_cast<size_t>(other())].get());
  }
}

void LinkPage::Revoke() { __atomic_store_n(Revocation(own_), 1, __ATOMIC_SEQ_CST); }

bool LinkPage::Revoked() const {
  // The loads of the copy come before the load of the word: whoever sees 0 here has read all its
  // bytes while the other side had yet to let its clients go.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return __atomic_load_n(Revocation(other()), __ATOMIC_SEQ_CST) != 0;
}

}  // namespace ferry
