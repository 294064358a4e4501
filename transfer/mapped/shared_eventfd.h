// SPDX-License-Identifier: Apache-2.0
// Adds 1 to an eventfd that another process has too, and never blocks, whatever that process does
// with it. write() could block: O_NONBLOCK belongs to the shared file, so the other process can
// clear it and fill the counter. Here the kernel adds the 1 itself, as its notice that a read of
// /dev/null is over (Linux AIO, IOCB_FLAG_RESFD); a full counter then stays full.
//
// One for the process, made at its first use and never destroyed. Any thread; allocates and locks
// nothing.
#pragma once

#include <linux/aio_abi.h>

#include "base/fd.h"

namespace ferry {

class SharedEventfd {
 public:
  // Null if the kernel has no AIO, or no place for one more user of it (/proc/sys/fs/aio-max-nr).
  static SharedEventfd* Get();

  // False if `fd` is not an eventfd.
  bool Add(int fd);

 private:
  SharedEventfd();
  aio_context_t context_ = 0;  // 0: there is none
  UniqueFd nothing_;
};

}  // namespace ferry
