// SPDX-License-Identifier: Apache-2.0
// Prints on stderr which case begins. If the case is not over in time, ends the process, with that
// name and with all that it has started. So calls without a deadline of their own, such as one that
// the driver does not answer, have this one. One at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace ferry::bench {

class CaseWatch {
 public:
  static constexpr std::chrono::seconds kMost{180};

  explicit CaseWatch(const std::string& name);
  ~CaseWatch();
  CaseWatch(const CaseWatch&) = delete;
  CaseWatch& operator=(const CaseWatch&) = delete;

 private:
  void Watch();

  const std::string name_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace ferry::bench
