// SPDX-License-Identifier: Apache-2.0
#include "tests/support/bad_peer.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/grpc_target.h"
#include "tests/support/lying_peer.h"
#include "tests/support/process.h"
#include "transfer/mapped/link_page.h"

namespace ferry::testing {
namespace {

constexpr size_t kNonceBytes = 32;

std::string BootId() {
  std::string id = ReadFile("/proc/sys/kernel/random/boot_id");
  return std::string(absl::StripSuffix(id, "\n"));
}

// Of host and port.
uint16_t PortOf(const std::string& address) {
  uint32_t port = 0;
  FERRY_CHECK(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  return static_cast<uint16_t>(port);
}

UniqueFd ListenAt(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  FERRY_CHECK(path.size() < sizeof(address.sun_path));
  memcpy(address.sun_path, path.data(), path.size());
  unlink(path.c_str());
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  FERRY_CHECK(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
              listen(listener.get(), 16) == 0);
  return listener;
}

}  // namespace

// A stream to the peer port. Of what comes the other end's nonce is kept, and what its transfers
// are called.
class BadPeer::Link {
 public:
  Link(const std::string& address, const std::string& secret,
       const peer::v1::PeerIntroduction& introduction, const peer::v1::PeerHello& hello)
      : stub_(peer::v1::PeerService::NewStub(
            grpc::CreateChannel(HostTarget(address), grpc::InsecureChannelCredentials()))) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    stream_ = stub_->Link(&context_);
    peer::v1::LinkRequest request;
    *request.mutable_frame()->mutable_introduction() = introduction;
    peer::v1::LinkResponse response;
    up_ =
        stream_->Write(request) && stream_->Read(&response) && response.frame().has_introduction();
    const peer::v1::PeerIntroduction theirs = response.frame().introduction();
    nonce_ = theirs.nonce();
    key_ = DiallersKey(secret, introduction, theirs);
    request.Clear();
    request.mutable_frame()->set_proof(DiallersProof(secret, introduction, theirs));
    *request.mutable_frame()->mutable_hello() = hello;
    up_ =
        up_ && stream_->Write(request) && stream_->Read(&response) && response.frame().has_hello();
    reader_ = std::thread([this] {
      peer::v1::LinkResponse said;
      while (up_ && stream_->Read(&said)) Keep(said.frame());
      up_ = false;
    });
  }
  ~Link() {
    context_.TryCancel();
    reader_.join();
    stream_->Finish();
  }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  bool up() const { return up_; }
  const std::string& nonce() const { return nonce_; }
  const std::string& key() const { return key_; }
  // What it has offered, and tags that it has said to launch under; the last ones.
  std::vector<peer::v1::PeerEvent> offers() {
    std::lock_guard<std::mutex> lock(mutex_);
    return offers_;
  }
  std::vector<uint64_t> tags() {
    std::lock_guard<std::mutex> lock(mutex_);
    return tags_;
  }
  void Say(const peer::v1::LinkRequest& request) {
    if (!stream_->Write(request)) up_ = false;
  }

 private:
  static constexpr size_t kMostKept = 32;
  void Keep(const peer::v1::Frame& frame) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const peer::v1::PeerEvent& event : frame.events()) {
      if (event.has_offer()) offers_.push_back(event);
      if (event.has_go()) tags_.push_back(event.go().tag());
    }
    if (offers_.size() > kMostKept) offers_.erase(offers_.begin(), offers_.end() - kMostKept);
    if (tags_.size() > kMostKept) tags_.erase(tags_.begin(), tags_.end() - kMostKept);
  }

  std::unique_ptr<peer::v1::PeerService::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<peer::v1::LinkRequest, peer::v1::LinkResponse>> stream_;
  std::string nonce_, key_;
  std::mutex mutex_;
  std::vector<peer::v1::PeerEvent> offers_;
  std::vector<uint64_t> tags_;
  std::atomic<bool> up_{false};
  std::thread reader_;
};

BadPeer::BadPeer(BadPeerOptions options, uint64_t seed)
    : options_(std::move(options)),
      nonsense_(seed),
      data_(PortOf(options_.address), options_.devices, options_.theirs, nonsense_),
      listener_(ListenAt(options_.own_socket)),
      server_([this] { ServeOwnSocket(); }) {}

BadPeer::~BadPeer() {
  stops_ = true;
  server_.join();
}

peer::v1::PeerIntroduction BadPeer::Introduction() {
  peer::v1::PeerIntroduction introduction;
  introduction.set_protocol_min(3);
  introduction.set_protocol_max(3);
  introduction.set_node(options_.node);
  introduction.set_incarnation(1 + nonsense_.Below(UINT64_MAX));
  introduction.set_boot_id(nonsense_.Chance(70) ? BootId() : "another host");
  introduction.set_uid(geteuid());
  introduction.set_peer_socket(options_.own_socket);
  std::string nonce(kNonceBytes, '\0');
  for (char& byte : nonce) byte = static_cast<char>(nonsense_.Below(256));
  introduction.set_nonce(nonce);
  return introduction;
}

peer::v1::PeerHello BadPeer::Hello() {
  peer::v1::PeerHello hello;
  hello.set_tcp(nonsense_.Chance(80));
  for (const uint64_t device : options_.devices) hello.add_devices()->set_global_device_id(device);
  hello.set_daemon_version("bad");
  return hello;
}

void BadPeer::Step() {
  if (link_ == nullptr || !link_->up()) {
    socket_.reset();
    const peer::v1::PeerIntroduction introduction = Introduction();
    // Now and then without the secret.
    const std::string secret = nonsense_.Chance(95) ? options_.secret : "a guess";
    link_ = std::make_unique<Link>(options_.address, secret, introduction, Hello());
    next_event_ = 1;
    data_.OnLink(link_->key());
    return;
  }
  const uint64_t what = nonsense_.Below(100);
  if (what < 45) {
    SayEvents();
  } else if (what < 70) {
    SayOnSocket();
  } else if (what < 97) {
    data_.Step(link_->tags());
  } else {
    link_.reset();
  }
}

// One that fits its own bytes and devices, with a layout of any kind.
void BadPeer::FillOffer(peer::v1::Offer& offer) {
  offer.set_domain(nonsense_.Text().substr(0, 32));
  offer.set_src_global_device_id(options_.devices[nonsense_.Below(options_.devices.size())]);
  offer.set_dst_global_device_id(options_.theirs[nonsense_.Below(options_.theirs.size())]);
  offer.set_key(absl::StrCat("k", nonsense_.Below(16), nonsense_.Below(4)));
  offer.set_ready(nonsense_.Chance(70));
  const std::vector<peer::v1::PeerEvent> heard = link_->offers();
  if (!heard.empty() && nonsense_.Chance(50)) {  // what others wait for
    offer.set_domain(heard[nonsense_.Below(heard.size())].offer().domain());
    offer.set_key(absl::StrCat("v", nonsense_.Below(8)));
    offer.set_prepared(nonsense_.Chance(20));
    offer.set_bytes(options_.bytes);
    offer.add_ranges()->set_length(options_.bytes);
    return;
  }
  if (nonsense_.Chance(50)) {
    const uint64_t count = nonsense_.Chance(20) ? 1 << 20 : nonsense_.Below(1000);
    v1::StridedRange& strided = *offer.mutable_strided();
    strided.set_arena_id(nonsense_.Below(4));
    strided.set_block_bytes(1);
    strided.set_stride_bytes(nonsense_.Below(4));
    strided.set_count(count);
    offer.set_bytes(count);
    return;
  }
  uint64_t bytes = 0;
  for (uint64_t i = nonsense_.Chance(5) ? 2000 : nonsense_.Below(4); i > 0; --i) {
    v1::BufferRange& range = *offer.add_ranges();
    range.set_arena_id(nonsense_.Below(4));
    range.set_offset(nonsense_.Number());
    range.set_length(nonsense_.Below(64));
    bytes += range.length();
  }
  offer.set_bytes(bytes);
}

// To something that the other end has offered: it is to be launched.
peer::v1::PeerEvent BadPeer::Answer() {
  const std::vector<peer::v1::PeerEvent> heard = link_->offers();
  peer::v1::PeerEvent event;
  event.set_transfer(heard.empty() ? nonsense_.Number()
                                   : heard[nonsense_.Below(heard.size())].transfer());
  if (nonsense_.Chance(20)) {
    event.mutable_matched();
  } else if (nonsense_.Chance(20)) {
    event.mutable_done();
  } else {
    event.mutable_go()->set_attempt(nonsense_.Chance(80) ? 1 : nonsense_.Below(4));
    event.mutable_go()->set_route(
        nonsense_.Chance(80) ? v1::ROUTE_TCP : static_cast<v1::Route>(1 + nonsense_.Below(5)));
    event.mutable_go()->set_tag(nonsense_.Below(64));
  }
  return event;
}

peer::v1::PeerEvent BadPeer::Event() {
  peer::v1::PeerEvent event;
  if (nonsense_.Chance(15)) return Answer();
  if (nonsense_.Chance(50)) {
    event.set_transfer(++offers_);
    FillOffer(*event.mutable_offer());
    return event;
  }
  // What is said of an offer, or of a send that the other end has offered: no id of that is hard to
  // guess.
  nonsense_.Fill(event);
  if (event.has_offer()) event.mutable_withdraw()->mutable_status()->set_code(1);
  // Most of these would be out of bounds, which ends the link.
  if (event.has_seek() && nonsense_.Chance(95)) {
    event.mutable_seek()->set_key(absl::StrCat("v", nonsense_.Below(8)));
    event.mutable_seek()->set_domain(nonsense_.Text().substr(0, 32));
  }
  event.set_transfer(nonsense_.Chance(50) ? nonsense_.Below(offers_ + 2)
                                          : (1 + nonsense_.Below(8)) << 40 | nonsense_.Below(64));
  return event;
}

void BadPeer::SayEvents() {
  peer::v1::LinkRequest request;
  peer::v1::Frame& frame = *request.mutable_frame();
  for (uint64_t i = nonsense_.Chance(5) ? 3000 : nonsense_.Below(20); i > 0; --i) {
    *frame.add_events() = Event();
  }
  frame.set_more(nonsense_.Chance(20));
  frame.set_first_event(nonsense_.Chance(98) ? next_event_ : nonsense_.Number());
  next_event_ += static_cast<uint64_t>(frame.events_size());
  link_->Say(request);
}

void BadPeer::SayOnSocket() {
  if (socket_ == nullptr) {
    socket_ = std::make_unique<RawSocket>(options_.their_socket, SOCK_SEQPACKET);
    peer::v1::PeerSocketRequest hello;
    hello.set_sequence(sequence_ = 1);
    hello.mutable_hello()->set_node(options_.node);
    hello.mutable_hello()->set_link_secret(nonsense_.Chance(90) ? link_->nonce()
                                                                : nonsense_.Bytes(kNonceBytes));
    if (!socket_->connected() || !socket_->Send(hello.SerializeAsString())) socket_.reset();
    return;
  }
  peer::v1::PeerSocketRequest request;
  if (nonsense_.Chance(50)) {
    nonsense_.Fill(request);
  } else if (nonsense_.Chance(50)) {
    request.mutable_get_arena()->set_arena_id(nonsense_.Below(8));
  } else {
    *request.mutable_frame()->add_events() = Event();
    request.mutable_frame()->set_first_event(next_event_++);
  }
  request.set_sequence(++sequence_);
  std::string bytes = request.SerializeAsString();
  if (nonsense_.Chance(10)) bytes = nonsense_.Broken(std::move(bytes));
  if (bytes.size() > 100'000 || !socket_->Send(bytes)) return socket_.reset();
  // Whatever is answered is read, so that there is room for more.
  char byte = 0;
  ssize_t got = 1;
  while (got > 0) got = recv(socket_->fd(), &byte, 1, MSG_DONTWAIT | MSG_TRUNC);
  if (got == 0) socket_.reset();
}

// Gives whoever asks a page, in which it then writes what it likes.
void BadPeer::ServeOwnSocket() {
  Nonsense nonsense(1);
  const UniqueFd page = MakeMemfd(LinkPage::kBytes, ArenaSeals());
  const UniqueFd doorbells[] = {UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                                UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  while (!stops_) {
    std::vector<pollfd> polled = {{listener_.get(), POLLIN, 0}};
    for (const RawSocket& one : accepted_) polled.push_back({one.fd(), POLLIN, 0});
    poll(polled.data(), polled.size(), 20);
    std::string scribble = nonsense.Bytes(256);
    const auto place = static_cast<off_t>(nonsense.Below(LinkPage::kBytes - 256));
    [[maybe_unused]] const ssize_t ignored =
        pwrite(page.get(), scribble.data(), scribble.size(), place);
    for (size_t i = polled.size() - 1; i > 0; --i) {
      if (polled[i].revents == 0) continue;
      std::string bytes(64 << 10, '\0');
      const ssize_t got = recv(polled[i].fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
      peer::v1::PeerSocketRequest request;
      if (got <= 0 || !request.ParseFromArray(bytes.data(), static_cast<int>(got))) {
        accepted_.erase(accepted_.begin() + static_cast<ptrdiff_t>(i - 1));
        continue;
      }
      peer::v1::PeerSocketResponse response;
      response.set_sequence(request.sequence());
      std::vector<int> fds;
      if (request.has_hello()) {
        response.mutable_welcome();
        fds = {page.get(), doorbells[0].get(), doorbells[1].get()};
      } else if (request.has_get_arena() && nonsense.Chance(70)) {
        response.mutable_arena_lent()->set_arena_id(request.get_arena().arena_id());
        response.mutable_arena_lent()->set_bytes(nonsense.Number());
        fds = {page.get()};
      } else {
        nonsense.Fill(response);
      }
      accepted_[i - 1].Send(response.SerializeAsString(), fds);
    }
    if (polled[0].revents != 0) {
      accepted_.emplace_back(UniqueFd(accept(listener_.get(), nullptr, nullptr)));
    }
  }
}

}  // namespace ferry::testing
