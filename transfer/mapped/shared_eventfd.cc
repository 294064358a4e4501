// SPDX-License-Identifier: Apache-2.0
#include "transfer/mapped/shared_eventfd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

namespace ferry {
namespace {
constexpr int kMostUntaken = 64;  // of what is over; then it is taken
}  // namespace

SharedEventfd::SharedEventfd() : nothing_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  if (!nothing_.valid() || syscall(SYS_io_setup, kMostUntaken, &context_) != 0) context_ = 0;
}

SharedEventfd* SharedEventfd::Get() {
  static SharedEventfd* const only = new SharedEventfd();
  return only->context_ != 0 ? only : nullptr;
}

bool SharedEventfd::Add(int fd) {
  iocb read = {};
  read.aio_lio_opcode = IOCB_CMD_PREAD;
  read.aio_fildes = static_cast<__u32>(nothing_.get());
  read.aio_flags = IOCB_FLAG_RESFD;
  read.aio_resfd = static_cast<__u32>(fd);
  iocb* reads[] = {&read};
  while (syscall(SYS_io_submit, context_, 1, reads) != 1) {
    // No room: what is over is to be taken, which other lanes may be at as well.
    if (errno != EAGAIN) return false;
    io_event over[kMostUntaken];
    FERRY_CHECK(syscall(SYS_io_getevents, context_, 0, kMostUntaken, over, nullptr) >= 0);
  }
  return true;
}

}  // namespace ferry
