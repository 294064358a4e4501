// SPDX-License-Identifier: Apache-2.0
// Packets of attach.sock from two clients into a real session table, and of peer.sock into their
// codec and the order of their frames. Steps: A, B a client's packet; a, b one with an fd; X, Y a
// client is gone; T time passes (2^n ms); P, Q a packet of peer.sock, a request and a response.
#include "base/check.h"
#include "daemon/rpc/attach_codec.h"
#include "tests/fuzz/daemon_core.h"
#include "tests/fuzz/steps.h"
#include "transfer/frame_order.h"

namespace ferry::testing {
namespace {

// What is understood is said alike.
template <typename Parse>
void CheckPeerSocket(const std::string& packet, Parse parse) {
  const auto parsed = parse(packet);
  if (!parsed.ok()) return;
  const std::string encoded = EncodePeerSocket(*parsed);
  const auto again = parse(encoded);
  FERRY_CHECK(again.ok() && EncodePeerSocket(*again) == encoded);
}

// A link, which a frame out of bounds ends.
struct LinkOrder {
  void OnPacket(const std::string& packet) {
    auto request = ParsePeerSocketRequest(packet);
    auto* frame = request.ok() ? std::get_if<PeerFrame>(&request->body) : nullptr;
    if (frame == nullptr) return;
    if (!order.Put(std::move(*frame)).ok()) *this = LinkOrder();
    while (auto taken = order.Take()) {
      FERRY_CHECK(taken->first_event == next && taken->events() > 0);
      next += taken->events();
    }
  }
  FrameOrder order;
  uint64_t next = 1;
};

void Do(DaemonCore& core, LinkOrder& link, const Step& step) {
  switch (step.verb) {
    case 'A':
    case 'a':
      return core.OnPacket(1, step.body, step.verb == 'a');
    case 'B':
    case 'b':
      return core.OnPacket(2, step.body, step.verb == 'b');
    case 'X':
      return core.OnClosed(1);
    case 'Y':
      return core.OnClosed(2);
    case 'T':
      return core.Advance(absl::Milliseconds(int64_t{1} << (step[0] % 20)));
    case 'P':
      link.OnPacket(step.body);
      return CheckPeerSocket(step.body, ParsePeerSocketRequest);
    case 'Q':
      return CheckPeerSocket(step.body, ParsePeerSocketResponse);
  }
}

}  // namespace
}  // namespace ferry::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::testing;
  DaemonCore core;
  LinkOrder link;
  for (const Step& step : StepsOf(data, size)) Do(core, link, step);
  return 0;
}
