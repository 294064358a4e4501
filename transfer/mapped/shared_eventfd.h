// SPDX-License-Identifier: Apache-2.0
// Adds 1 to an eventfd that another process has too, and never waits, whatever that process does
// with it. write() would: O_NONBLOCK belongs to what is shared, so the other process can clear it
// and fill the counter. Here the kernel adds the 1 by itself, as what tells that a read of
// /dev/null is over (Linux AIO, IOCB_FLAG_RESFD), and a full counter then stays full.
//
// One for the process, made at its first use and never destroyed. Any thread; nothing is allocated
// or locked.
#pragma once

#include <linux/aio_abi.h>

#include "base/fd.h"

namespace ferry {

class SharedEventfd {
 public:
  // Null if the kernel does not do that, or has no place for one more user of it
  // (/proc/sys/fs/aio-max-nr).
  static SharedEventfd* Get();

  // False if `fd` is not an eventfd.
  bool Add(int fd);

 private:
  SharedEventfd();
  aio_context_t context_ = 0;  // 0: there is none
  UniqueFd nothing_;
};

}  // namespace ferry
