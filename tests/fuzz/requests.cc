// SPDX-License-Identifier: Apache-2.0
// Requests of two clients that have a session each, through convert into the session table, the
// driver and the engine, with memory that is copied. Steps: S, R post a send or a receive of client
// 1; s, r of client 2; C, c cancel a transfer; X, Y
// a client is gone; F a frame of node-b; T time passes (2^n ms).
#include "daemon/rpc/convert.h"
#include "ferry/v1/transfer.pb.h"
#include "tests/fuzz/daemon_core.h"
#include "tests/fuzz/steps.h"

namespace ferry::testing {
namespace {

class Story {
 public:
  Story() {
    for (const int client : {0, 1}) ids_[client] = core_.Open(client + 1)->id();
  }

  void Do(const Step& step) {
    switch (step.verb) {
      case 'S':
        return Post<v1::CrossHostSendRequest>(0, step);
      case 's':
        return Post<v1::CrossHostSendRequest>(1, step);
      case 'R':
        return Post<v1::CrossHostReceiveRequest>(0, step);
      case 'r':
        return Post<v1::CrossHostReceiveRequest>(1, step);
      case 'C':
        return core_.Cancel(ids_[0], {step[0]});
      case 'c':
        return core_.Cancel(ids_[1], {step[0]});
      case 'X':
        return core_.OnClosed(1);
      case 'Y':
        return core_.OnClosed(2);
      case 'F':
        return core_.OnFrame(step.body);
      case 'T':
        return core_.Advance(absl::Milliseconds(int64_t{1} << (step[0] % 20)));
    }
  }

 private:
  template <typename Request>
  void Post(int client, const Step& step) {
    Request request;
    if (request.ParseFromString(step.body)) core_.Post(ids_[client], Convert(request));
  }

  DaemonCore core_;
  SessionId ids_[2];
};

}  // namespace
}  // namespace ferry::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::testing;
  Story story;
  for (const Step& step : StepsOf(data, size)) story.Do(step);
  return 0;
}
