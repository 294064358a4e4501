// SPDX-License-Identifier: Apache-2.0
// Says on stderr which case begins, and ends the process with that name if the case is not over in
// time: what hangs, hangs in some wait far below. One at a time.
#pragma once

#include <string>

namespace ferry::bench {

class CaseWatch {
 public:
  static constexpr unsigned kMostSeconds = 180;

  explicit CaseWatch(const std::string& name);
  ~CaseWatch();
  CaseWatch(const CaseWatch&) = delete;
  CaseWatch& operator=(const CaseWatch&) = delete;
};

}  // namespace ferry::bench
