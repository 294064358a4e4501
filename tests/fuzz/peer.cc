// SPDX-License-Identifier: Apache-2.0
// A peer that says anything at any time to node-a's engine, which has transfers of its own with it.
// Whatever it says, each transfer ends once, what
// is said to the peer is what a peer may be told, and once the link is lost and the session is gone
// nothing is left. node-a has devices 0 and 1, the peer node-b 2 and 3, node-c only a name (4).
//
// Steps: F frame; P post (what, key); D defined (which); C cancel (which); T time passes (2^n ms);
// L a launch is answered (how); G a group is answered (how); V a communicator shall go; X the link
// is lost; U the link is up (with what routes).
#include <google/protobuf/stubs/logging.h>

#include <deque>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/status.h"
#include "daemon/rpc/peer_codec.h"
#include "tests/fuzz/steps.h"
#include "transfer/engine.h"

namespace ferry::testing {
namespace {

// It complains about each text that is no text.
const auto kQuiet = google::protobuf::SetLogHandler(nullptr);

constexpr PeerId kNodeB{1};
constexpr SessionId kSession{1};

RouteTable Routes(uint8_t bits) {
  RouteTable routes(kRoutes);
  for (size_t i = 1; i < kRoutes; ++i) routes[i] = {(bits >> i & 1) != 0, "not now"};
  return routes;
}

TransferEngine Engine() {
  DeviceMap map;
  map.self = PeerId(0);
  for (uint64_t device = 0; device < 5; ++device) {
    map.owner[GlobalDeviceId(device)] = PeerId(static_cast<uint32_t>(device / 2));
  }
  map.node_names = {"node-a", "node-b", "node-c"};
  TransferEngine::Options options;
  options.order = {Route::kLocal, Route::kMapped, Route::kUcx, Route::kTcp, Route::kNccl};
  options.bounds.offers_per_peer = 8;
  return TransferEngine(std::move(map), std::move(options));
}

class NodeA {
 public:
  NodeA() {
    engine_.OnPeerUp(now_, kNodeB, Routes(0xff));
    Carry();
  }

  void Do(const Step& step) {
    switch (step.verb) {
      case 'F':
        OnFrame(step.body);
        break;
      case 'P':
        Post(step[0], step[1]);
        break;
      case 'D':
        engine_.OnDefined(now_, Which(step[0]));
        break;
      case 'C':
        engine_.Cancel(
            now_, Which(step[0]),
            Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the client asked for it"));
        break;
      case 'T':
        now_ += absl::Milliseconds(int64_t{1} << (step[0] % 20));
        engine_.OnTime(now_);
        break;
      case 'L':
        AnswerLaunch(step[0]);
        break;
      case 'G':
        AnswerGroup(step[0]);
        break;
      case 'V':
        engine_.EvictCommunicator(now_, {GlobalDeviceId(step[0] % 2), GlobalDeviceId(2)},
                                  step[0] >= 128);
        break;
      case 'X':
        LoseLink();
        break;
      case 'U':
        engine_.OnPeerUp(now_, kNodeB, Routes(step[0]));
        break;
      default:
        return;
    }
    Carry();
  }

  void End() {
    LoseLink();
    engine_.EndSession(now_, kSession, "the client's session ended");
    for (Carry(); !launches_.empty() || !groups_.empty(); Carry()) {
      AnswerLaunch(0);
      AnswerGroup(0);
    }
    FERRY_CHECK(open_.empty());
    FERRY_CHECK(engine_.view().in_flight() == 0);
    FERRY_CHECK(engine_.view().waiting_offers() == 0);
    FERRY_CHECK(engine_.view().waiting_pairs() == 0);
    FERRY_CHECK(engine_.view().groups() == 0);
  }

 private:
  TransferId Which(uint8_t which) const { return MakeTransferId(kSession, which); }

  void OnFrame(const std::string& bytes) {
    peer::v1::Frame proto;
    absl::StatusOr<PeerFrame> frame = absl::InvalidArgumentError("not a frame");
    if (proto.ParseFromString(bytes)) frame = Decode(proto);
    if (!frame.ok()) {  // as the link's end of it: closed, and dialled again
      LoseLink();
      engine_.OnPeerUp(now_, kNodeB, Routes(0xff));
      return;
    }
    for (PeerMessage& message : frame->messages) {
      engine_.OnMessage(now_, kNodeB, std::move(message));
    }
  }

  void Post(uint8_t what, uint8_t key) {
    TransferSpec spec;
    spec.side = (what & 1) != 0 ? Side::kReceive : Side::kSend;
    const GlobalDeviceId ours(what >> 1 & 1);
    const GlobalDeviceId theirs(2 + (what >> 2 & 1));
    spec.key.domain = "job";
    spec.key.source = spec.side == Side::kSend ? ours : theirs;
    spec.key.destination = spec.side == Side::kSend ? theirs : ours;
    spec.key.key = std::string(1, static_cast<char>('a' + key % 8));
    spec.bytes = (what >> 3 & 1) != 0 ? 100'000'000 : 64;
    spec.layout = {{ArenaId(1), 0, spec.bytes}};
    spec.prepared = key >= 128;
    spec.defined = (what >> 4 & 1) == 0 || spec.prepared;
    spec.defined_value = 1;
    spec.route = static_cast<Route>((what >> 5) % kRoutes);
    spec.deadline = now_ + absl::Seconds(60);
    if (!engine_.Check({&spec, 1}).empty()) return;
    engine_.Post(now_, kSession, next_, {&spec, 1});
    open_.insert(MakeTransferId(kSession, next_++));
  }

  static absl::Status Answer(uint8_t how) {
    switch (how % 3) {
      case 0:
        return absl::OkStatus();
      case 1:
        return Error(absl::StatusCode::kFailedPrecondition, Reason::kRouteUnavailable,
                     "nothing was moved");
      default:
        return Error(absl::StatusCode::kInternal, Reason::kInternal, "the launch failed");
    }
  }
  void AnswerLaunch(uint8_t how) {
    if (launches_.empty()) return;
    const Launch launch = std::move(launches_.front());
    launches_.pop_front();
    engine_.OnLaunchDone(now_, launch.transfer, launch.attempt, Answer(how));
  }
  void AnswerGroup(uint8_t how) {
    if (groups_.empty()) return;
    const uint64_t group = groups_.front();
    groups_.pop_front();
    engine_.OnGroupDone(now_, group, Answer(how));
  }
  void LoseLink() { engine_.OnPeerLost(now_, kNodeB, absl::UnavailableError("reset"), true); }

  // Carries out what the engine wants, as the driver does.
  void Carry() {
    for (Outbox out = engine_.TakeOutbox(); !out.empty(); out = engine_.TakeOutbox()) {
      PeerFrame said;
      for (auto& [peer, message] : out.messages) {
        if (peer == kNodeB) said.messages.push_back(std::move(message));
      }
      peer::v1::Frame proto;
      Encode(said, &proto);
      peer::v1::Frame read;
      FERRY_CHECK(read.ParseFromString(proto.SerializeAsString()));
      FERRY_CHECK(Decode(read).ok());
      for (Launch& launch : out.launches) launches_.push_back(std::move(launch));
      for (const GroupOrder& order : out.groups) {
        if (const auto* launch = std::get_if<GroupLaunch>(&order)) CheckGroup(*launch);
        const auto* open = std::get_if<CommunicatorOpen>(&order);
        if (open == nullptr) continue;
        if (open->unique_id.empty()) {
          engine_.OnCommunicatorId(now_, open->clique, open->attempt, "unique");
        }
        engine_.OnCommunicatorOpened(now_, open->clique, open->attempt);
      }
      for (const Ended& ended : out.ended) FERRY_CHECK(open_.erase(ended.transfer) == 1);
    }
  }
  // A chunk outside of its transfer would be somebody else's memory.
  void CheckGroup(const GroupLaunch& launch) {
    for (const GroupChunk& chunk : launch.chunks) {
      if (chunk.bundle != 0) continue;  // its lane has the layouts
      FERRY_CHECK(open_.contains(chunk.transfer));
      const uint64_t bytes = chunk.layout.bytes();
      FERRY_CHECK(chunk.bytes <= bytes && chunk.offset <= bytes - chunk.bytes);
    }
    groups_.push_back(launch.ticket);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  TransferEngine engine_ = Engine();
  uint64_t next_ = 1;
  absl::flat_hash_set<TransferId> open_;  // posted, not over
  std::deque<Launch> launches_;           // that a lane has
  std::deque<uint64_t> groups_;
};

}  // namespace
}  // namespace ferry::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::testing;
  NodeA node;
  for (const Step& step : StepsOf(data, size)) node.Do(step);
  node.End();
  return 0;
}
