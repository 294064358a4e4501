// SPDX-License-Identifier: Apache-2.0
// A peer that has proven itself and then says anything on the connections of route `tcp` to a lane
// that has transfers of its own with it. Whatever it says, each transfer is answered once, no byte
// of memory changes but that of receives, nothing fires that the client does not want, what is sent
// is what the wire allows, and it is bytes of sends.
//
// Steps: D preamble, of a stranger; L launch (what, size); A abort (which); F a prepared batch is
// fired (which); B bytes (connection, ...); M a message (connection, kind, entries of 3 bytes: tag,
// where, how much), and its bytes; C the peer connects anew; X it hangs up (connection).
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/status.h"
#include "device/prepared_batch.h"
#include "device/timeline.h"
#include "tests/fuzz/steps.h"
#include "transfer/tcp/tcp_transport.h"

namespace ferry::testing {
namespace {

constexpr PeerId kPeer{1};
constexpr GlobalDeviceId kOurs{0}, kTheirs{1};
constexpr absl::string_view kKey = "0123456789abcdef0123456789abcdef";
constexpr uint32_t kConnections = 2;  // of a set: one for what is small, one for what is large
// A transfer has a slot of its own, of which its bytes are the beginning.
constexpr size_t kSlot = 64 << 10;
constexpr size_t kUnit = 160;  // sizes are multiples: up to 40,800 bytes, more than what is small
constexpr auto kUntouched = std::byte{0x5A}, kSent = std::byte{0x53};
constexpr char kSaid = 'x';

// A thread takes longer to start than a story.
Lane& SharedLane() {
  static Lane& lane = []() -> Lane& {
    FERRY_CHECK(SetLogLevel("off").ok());
    HmacSha256("", "");  // so that OpenSSL, begun before the lane, ends after it
    static Lane made("fuzz", absl::ZeroDuration());
    return made;
  }();
  return lane;
}

class Peer {
 public:
  Peer() : lane_(SharedLane()), memory_(kMaxSteps * kSlot, kUntouched) {
    auto pages = TimelinePages::Create();
    FERRY_CHECK(pages.ok());
    pages_ = *std::move(pages);
    transport_ = TcpTransport::Create(lane_, kOurs, {},
                                      {[this](std::vector<OpResult> results) {
                                         for (const OpResult& result : results) {
                                           FERRY_CHECK(open_.erase(result.transfer) == 1);
                                         }
                                       },
                                       nullptr});
    TcpPeer peer;
    peer.id = kPeer;
    peer.name = "peer";
    peer.secret = std::string(kKey);
    peer.devices = {kTheirs};
    lane_.RunAndWait([&] { transport_->AddPeer(peer); });
    Connect();
  }

  void Do(const Step& step) {
    switch (step.verb) {
      case 'D':
        Dial(step.body);
        break;
      case 'L':
        Launch(step[0], step[1]);
        break;
      case 'A':
        lane_.RunAndWait([&] {
          transport_->Abort(
              TransferId(1 + step[0] % kMaxSteps), 1,
              Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the client asked for it"));
        });
        break;
      case 'F':
        if (!batches_.empty()) {
          const size_t which = step[0] % batches_.size();
          batches_[which]->Define(++fired_[which]);
        }
        break;
      case 'B':
        if (!step.body.empty()) Say(step[0], step.body.substr(1));
        break;
      case 'M':
        SayMessage(step.body);
        break;
      case 'C':
        Connect();
        break;
      case 'X':
        Settle();
        ends_[step[0] % kConnections].Reset();
        break;
      default:
        return;
    }
    Settle();
  }

  void End() {
    Settle();
    lane_.RunAndWait([&] {
      transport_->RemovePeer(
          kPeer, Error(absl::StatusCode::kAborted, Reason::kPeerUnreachable, "the link was lost"));
    });
    Settle();
    lane_.RunAndWait([&] { FERRY_CHECK(open_.empty()); });
    transport_.reset();
    for (size_t i = 0; i < batches_.size(); ++i) FERRY_CHECK(batches_[i]->firings() <= fired_[i]);
    size_t slot = 0;
    for (const auto& [size, receives] : slots_) {
      const std::byte* const begin = memory_.data() + slot++ * kSlot;
      for (size_t i = 0; i < kSlot; ++i) {
        const bool own = i < size;
        FERRY_CHECK(begin[i] == (own && !receives ? kSent : kUntouched) ||
                    (own && receives && begin[i] == static_cast<std::byte>(kSaid)) ||
                    (own && receives && raw_));
      }
    }
  }

 private:
  // Nothing that a stranger says proves it; what is read is what would be written.
  static void Dial(const std::string& bytes) {
    FERRY_CHECK(!ProvesTcp(bytes, kKey));
    const absl::StatusOr<TcpPreamble> preamble = DecodeTcpPreamble(bytes);
    if (!preamble.ok()) return;
    const std::string again = EncodeTcpPreamble(*preamble, kKey);
    FERRY_CHECK(again.size() == bytes.size());
    FERRY_CHECK(again.substr(0, again.size() - kHmacBytes) ==
                bytes.substr(0, bytes.size() - kHmacBytes));
    FERRY_CHECK(*DecodeTcpPreamble(again) == *preamble);
  }

  void Connect() {
    ++serial_;
    for (uint32_t i = 0; i < kConnections; ++i) {
      int fds[2];
      FERRY_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
      ends_[i].Reset(fds[0]);
      heard_[i].clear();
      UniqueFd theirs(fds[1]);
      lane_.RunAndWait([&] {
        transport_->Accept(kPeer, {TcpLinkId(kKey), kTheirs, kOurs, serial_, i, kConnections},
                           std::move(theirs));
      });
    }
  }

  void Launch(uint8_t what, uint8_t size) {
    TransportOp op;
    op.transfer = TransferId(slots_.size() + 1);
    op.attempt = 1;
    op.role = (what & 1) != 0 ? LaunchRole::kReceive : LaunchRole::kSend;
    op.peer = kPeer;
    op.remote_device = kTheirs;
    // A receive's tag is ours, and new; that of a send is what the peer says.
    const bool receives = op.role == LaunchRole::kReceive;
    op.tag = receives ? op.transfer.value() : what >> 2;
    const size_t bytes = size * kUnit;
    std::byte* const begin = memory_.data() + slots_.size() * kSlot;
    if (!receives) std::fill_n(begin, bytes, kSent);
    if (bytes > 0) op.segments.push_back({begin, bytes});
    slots_.emplace_back(bytes, receives);
    (receives ? receives_ : sends_).insert(op.tag);
    if ((what & 2) != 0) {
      batches_.push_back(pages_->Prepare(static_cast<uint32_t>(batches_.size()), 1));
      fired_.push_back(0);
      op.prepared = PreparedEnds{batches_.back().get(), nullptr, nullptr, 0};
      if (receives) batch_of_[op.tag] = batches_.size() - 1;
    }
    lane_.RunAndWait([&] {
      open_.insert(op.transfer);
      std::vector<TransportOp> ops;
      ops.push_back(std::move(op));
      transport_->Launch(std::move(ops));
    });
  }

  void Say(uint8_t connection, const std::string& bytes) {
    raw_ = true;  // bytes of any kind may have been meant for a receive
    Write(connection, bytes);
  }
  void Write(uint8_t connection, absl::string_view bytes) {
    const UniqueFd& end = ends_[connection % kConnections];
    for (int patience = 100; end.valid() && !bytes.empty() && patience > 0;) {
      const ssize_t sent = send(end.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0 && errno != EAGAIN) return;  // it has hung up
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (sent <= 0) --patience;
      Settle();
    }
  }

  void SayMessage(const std::string& body) {
    const auto at = [&](size_t i) -> uint8_t {
      return i < body.size() ? static_cast<uint8_t>(body[i]) : 0;
    };
    TcpHeader header;
    header.kind = at(1) % 5;
    std::vector<TcpEntry> entries;
    size_t bytes = 0;
    for (size_t i = 2; i + 2 < body.size(); i += 3) {
      TcpEntry& entry = entries.emplace_back();
      entry.tag = at(i);
      // Of bytes it is a place, of all else a firing.
      entry.at = header.kind == static_cast<uint32_t>(TcpKind::kBytes)
                     ? at(i + 1) * kUnit
                     : static_cast<uint64_t>(at(i + 1));
      entry.bytes = at(i + 2) * kUnit;
      bytes += entry.bytes;
    }
    header.entries = static_cast<uint32_t>(entries.size());
    std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
    message.append(reinterpret_cast<const char*>(entries.data()),
                   entries.size() * sizeof(TcpEntry));
    if (header.kind == static_cast<uint32_t>(TcpKind::kBytes)) message.append(bytes, kSaid);
    Write(at(0), message);
  }

  // The lane has seen what there is, and what it says was heard.
  void Settle() {
    for (int i = 0; i < 2; ++i) lane_.RunAndWait([] {});
    for (uint32_t i = 0; i < kConnections; ++i) Hear(i);
  }

  void Hear(uint32_t connection) {
    char bytes[16 << 10];
    std::string& heard = heard_[connection];
    ssize_t got = 0;
    while (ends_[connection].valid() &&
           (got = recv(ends_[connection].get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0) {
      heard.append(bytes, static_cast<size_t>(got));
    }
    while (TakeMessage(heard)) continue;
  }

  // Whether there was a whole one.
  bool TakeMessage(std::string& heard) const {
    TcpHeader header;
    if (heard.size() < sizeof(header)) return false;
    memcpy(&header, heard.data(), sizeof(header));
    FERRY_CHECK(header.kind >= 1 && header.kind <= 4);
    FERRY_CHECK(header.entries >= 1 && header.entries <= kTcpMostEntries);
    const auto kind = static_cast<TcpKind>(header.kind);
    const bool of_sends = kind == TcpKind::kBytes || kind == TcpKind::kArmed;
    size_t size = sizeof(header) + header.entries * sizeof(TcpEntry);
    if (heard.size() < size) return false;
    const size_t begin = size;
    for (uint32_t i = 0; i < header.entries; ++i) {
      TcpEntry entry;
      memcpy(&entry, heard.data() + sizeof(header) + i * sizeof(entry), sizeof(entry));
      FERRY_CHECK((of_sends ? sends_ : receives_).contains(entry.tag));
      if (kind == TcpKind::kBytes) size += entry.bytes;
      // A firing that the client has asked for.
      if (!of_sends) FERRY_CHECK(entry.at >= 1 && entry.at <= fired_[batch_of_.at(entry.tag)]);
    }
    FERRY_CHECK(size - begin <= kTcpMessageBytes);
    if (heard.size() < size) return false;
    FERRY_CHECK(std::all_of(heard.begin() + static_cast<ptrdiff_t>(begin),
                            heard.begin() + static_cast<ptrdiff_t>(size),
                            [](char byte) { return byte == static_cast<char>(kSent); }));
    heard.erase(0, size);
    return true;
  }

  Lane& lane_;
  std::vector<std::byte> memory_;
  std::unique_ptr<TimelinePages> pages_;
  std::vector<std::unique_ptr<PreparedBatch>> batches_;  // outlive the transport
  std::vector<uint64_t> fired_;
  std::unique_ptr<TcpTransport> transport_;
  UniqueFd ends_[kConnections];
  std::string heard_[kConnections];
  uint64_t serial_ = 0;
  std::vector<std::pair<size_t, bool>> slots_;  // size of each transfer, and whether it receives
  std::set<uint64_t> sends_, receives_;         // tags that there were
  std::map<uint64_t, size_t> batch_of_;         // by tag, of prepared receives
  absl::flat_hash_set<TransferId> open_;        // launched, not answered; the lane's
  bool raw_ = false;
};

}  // namespace
}  // namespace ferry::testing

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::testing;
  Peer peer;
  for (const Step& step : StepsOf(data, size)) peer.Do(step);
  peer.End();
  return 0;
}
