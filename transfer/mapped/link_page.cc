// SPDX-License-Identifier: Apache-2.0
#include "transfer/mapped/link_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "base/status.h"

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
  return std::unique_ptr<LinkPage>(new LinkPage(std::move(mapping), End::kMaker));
}

absl::StatusOr<std::unique_ptr<LinkPage>> LinkPage::Map(UniqueFd memfd) {
  ASSIGN_OR_RETURN(std::unique_ptr<HostMapping> mapping,
                   HostMapping::Map(std::move(memfd), kBytes, HostMapping::Access::kReadWrite));
  return std::unique_ptr<LinkPage>(new LinkPage(std::move(mapping), End::kTaker));
}

uint32_t* LinkPage::Word(End end) const {
  return reinterpret_cast<uint32_t*>(mapping_->data() + static_cast<uint64_t>(end) * kCacheLine);
}

void LinkPage::Revoke() { __atomic_store_n(Word(own_), 1, __ATOMIC_SEQ_CST); }

bool LinkPage::Revoked() const {
  const End other = own_ == End::kMaker ? End::kTaker : End::kMaker;
  // The loads of the copy come before the load of the word: whoever sees 0 here has read all its
  // bytes while the other side had yet to let its clients go.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return __atomic_load_n(Word(other), __ATOMIC_SEQ_CST) != 0;
}

}  // namespace ferry
