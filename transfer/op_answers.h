// SPDX-License-Identifier: Apache-2.0
// Gives a transport's answers of armed ops to its sink, all that were added since in one call by a
// task of the lane: a Transport does not answer inside Launch and Abort. Owns the answers until
// then. Home: the lane. Owner: the transport, which lives until the lane has run that task, or
// calls Flush.
#pragma once

#include <utility>
#include <vector>

#include "base/home.h"
#include "device/lane.h"
#include "transfer/transport.h"

namespace ferry {

class OpAnswers {
 public:
  OpAnswers(Lane& lane, OpSink sink) : lane_(lane), sink_(std::move(sink)) {}
  OpAnswers(const OpAnswers&) = delete;
  OpAnswers& operator=(const OpAnswers&) = delete;

  void Add(OpResult result) {
    home_.Check();
    answers_.push_back(std::move(result));
    if (answers_.size() == 1) lane_.Post([this] { Flush(); });
  }
  // Gives what waits to the sink now.
  void Flush() {
    home_.Check();
    if (!answers_.empty()) sink_(std::exchange(answers_, {}));
  }

 private:
  Lane& lane_;
  const OpSink sink_;
  std::vector<OpResult> answers_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
