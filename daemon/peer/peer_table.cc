// SPDX-License-Identifier: Apache-2.0
#include "daemon/peer/peer_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/duration.h"
#include "base/flight_recorder.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/status.h"
#include "daemon/peer/peer_link.h"

namespace ferry {
namespace {

constexpr absl::Duration kBackoffMax = absl::Seconds(3);

absl::flat_hash_set<GlobalDeviceId> GpusOf(const PeerHello& hello) {
  absl::flat_hash_set<GlobalDeviceId> gpus;
  for (const PeerDeviceInfo& device : hello.devices) {
    if (device.gpu) gpus.insert(device.id);
  }
  return gpus;
}

}  // namespace

PeerTable::PeerTable(Executor& control, LocalDevices& devices, SessionTable& sessions, PeerId self,
                     std::vector<PeerConfig> peers, Options options, Hooks hooks)
    : control_(control),
      devices_(devices),
      sessions_(sessions),
      self_(self),
      options_(std::move(options)),
      hooks_(std::move(hooks)),
      tcp_(devices, options_.tcp),
      ucx_(devices, options_.ucx, options_.ucx_version, options_.ucx_missing),
      nccl_(options_.nccl_missing),
      boot_id_(ReadBootId()) {
  MutexLock lock(pages_mutex_);
  for (size_t i = 0; i < peers.size(); ++i) {
    links_.push_back(nullptr);
    pages_.push_back({peers[i].node, nullptr});
    if (PeerId(static_cast<uint32_t>(i)) == self_) {
      own_ids_ = peers[i].devices;
      continue;
    }
    links_.back() = std::make_unique<Link>();
    links_.back()->id = PeerId(static_cast<uint32_t>(i));
    links_.back()->config = std::move(peers[i]);
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    if (links_[i] != nullptr) links_[i]->visit_at = control_.Now() + VisitPause() + i * kVisitGap;
  }
}

PeerTable::~PeerTable() = default;

bool PeerTable::Dials(const Link& link) const { return options_.node < link.config.node; }

PeerTable::Link* PeerTable::FindByNode(const std::string& node) {
  for (const auto& link : links_) {
    if (link != nullptr && link->config.node == node) return link.get();
  }
  return nullptr;
}

void PeerTable::SayGoodbye(std::function<void()> done) {
  home_.Check();
  leaving_ = true;
  gone_ = std::move(done);
  for (const auto& link : links_) {
    if (link == nullptr || link->stream == nullptr || !link->proven) continue;
    PeerFrame frame;
    frame.goodbye = true;
    link->stream->Send(std::move(frame));
  }
  LookWhoIsLeft();
}

void PeerTable::LookWhoIsLeft() {
  const bool left = std::any_of(links_.begin(), links_.end(), [](const auto& link) {
    return link != nullptr && link->stream != nullptr && link->proven;
  });
  if (!left && gone_) std::exchange(gone_, nullptr)();
}

void PeerTable::Say(Link& link, const absl::Status& why, bool goodbye) {
  const std::optional<LinkNews::Line> line = link.news.OnLost(control_.Now(), why, goodbye);
  if (!line) return;
  const LogFields fields("peer", link.config.node);
  if (line->warn) {
    FERRY_LOG(warn, "peer.lost", fields, "{}", line->text);
  } else {
    FERRY_LOG(info, "peer.lost", fields, "{}", line->text);
  }
}

void PeerTable::Stop() {
  home_.Check();
  stopped_ = leaving_ = true;
  gone_ = nullptr;
  const absl::Status why =
      Error(absl::StatusCode::kUnavailable, Reason::kDraining, "this daemon stops");
  while (!callers_.empty()) Refuse(callers_.begin(), why);
  while (!partings_.empty()) EndParting(partings_.begin());
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    if (link->stream != nullptr) Lose(*link, why);
    Tried(*link);
  }
}

void PeerTable::Want(PeerId peer) {
  home_.Check();
  if (Find(peer) == nullptr) return;
  Link& link = *Find(peer);
  if (link.wanted) return;
  link.wanted = true;
  if (link.visiting) {
    EndVisit(link, absl::CancelledError("somebody wants the link after all"));
  }
  if (link.state != State::kIdle && link.state != State::kLost) return;
  link.retry_at = control_.Now();
  control_.Post([] {});  // OnTime may have run already for this batch of tasks: have it run again
}

void PeerTable::WhenTried(GlobalDeviceId device, std::function<void()> done) {
  home_.Check();
  const auto entry = std::find_if(links_.begin(), links_.end(), [&](const auto& link) {
    return link != nullptr && std::find(link->config.devices.begin(), link->config.devices.end(),
                                        device) != link->config.devices.end();
  });
  if (stopped_ || entry == links_.end() || (*entry)->state == State::kUp) return done();
  Link& link = **entry;
  if (link.awaiting.empty()) link.awaiting_until = control_.Now() + kDialTimeout;
  link.awaiting.push_back(std::move(done));
  Want(link.id);
}

bool PeerTable::MayBringOffers(GlobalDeviceId device, absl::Duration settled) const {
  home_.Check();
  for (const auto& link : links_) {
    if (link == nullptr || std::find(link->config.devices.begin(), link->config.devices.end(),
                                     device) == link->config.devices.end()) {
      continue;
    }
    switch (link->state) {
      case State::kIdle:
        return link->wanted && link->error.ok();
      case State::kConnecting:
        return !link->visiting;
      case State::kSettling:
        return true;
      case State::kUp:
        return control_.Now() < link->since + settled;
      case State::kLost:
        return false;
    }
  }
  return false;
}

void PeerTable::Tried(Link& link) {
  for (const auto& done : std::exchange(link.awaiting, {})) done();
}

Incarnation PeerTable::IncarnationOf(PeerId peer) const {
  home_.Check();
  if (peer == self_) return options_.incarnation;
  return Find(peer) == nullptr ? Incarnation() : Find(peer)->hello.incarnation;
}

void PeerTable::Settle(Link& link, std::string mapped_error) {
  if (link.state != State::kSettling || !std::exchange(link.mapped_unsettled, false)) return;
  link.mapped = mapped_error.empty();
  link.mapped_error = std::move(mapped_error);
  if (!link.mapped && link.socket.has_value()) {
    hooks_.close(*link.socket);
    link.socket.reset();
  }
  GoUp(link);
}

void PeerTable::GoUp(Link& link) {
  const auto unsettled = [&](const LinkRoute* route) { return route->IsUnsettled(link.id); };
  if (link.mapped_unsettled || std::any_of(routes_.begin(), routes_.end(), unsettled)) return;
  link.state = State::kUp;
  link.since = control_.Now();
  link.backoff = kBackoffMin;
  link.error = absl::OkStatus();
  // Vain knocks to begin with after a loss: if only our dial works, dial again at once.
  link.vain_knocks = link.dialled && !Dials(link) ? kVainKnocks : 0;

  RouteTable routes(kRoutes);
  routes[static_cast<int>(Route::kLocal)].why = "the devices belong to two daemons";
  routes[static_cast<int>(Route::kMapped)] = {link.mapped, link.mapped_error};
  const PeerHello ours = MakeHello(link.id);
  for (LinkRoute* const route : routes_) {
    routes[static_cast<size_t>(route->route())] = route->GoUp(ViewOf(link), ours);
  }
  const auto shown = [](absl::string_view error) { return error.empty() ? "yes" : error; };
  FlightRecorder::Get().Record(
      "peer.up", link.id.value(), link.mapped, ucx_.IsTold(link.id),
      absl::StrCat(link.config.node, " ", link.hello.incarnation.ToString()));
  FERRY_LOG(info, "peer.up",
            LogFields("peer", link.config.node, "incarnation", link.hello.incarnation),
            "{}mapped {}, tcp {}, ucx {}", link.news.OnUp(link.since),
            link.mapped ? "yes" : link.mapped_error,
            std::string(shown(routes[static_cast<size_t>(Route::kTcp)].why)),
            std::string(shown(ucx_.ErrorOf(link.id))));
  driver_->OnPeerUp(link.id, std::move(routes), GpusOf(link.hello));
  Deliver(link);
  Tried(link);
}

LinkView PeerTable::ViewOf(const Link& link) {
  return {.peer = link.id,
          .number = link.number,
          .dialled = link.dialled,
          .mapped = link.mapped,
          .node = link.config.node,
          .devices = link.config.devices,
          .secret = link.secret,
          .hello = link.hello};
}

void PeerTable::OnTcpOpened(PeerId peer, uint64_t link_number, const absl::Status& status) {
  home_.Check();
  Link* const link = Find(peer);
  if (link != nullptr && tcp_.OnOpened(peer, link_number, status)) GoUp(*link);
}

std::string PeerTable::UcxWay(GlobalDeviceId device) const {
  home_.Check();
  if (devices_.Find(device) != nullptr) return ucx_.WayOf(device);
  const PeerDeviceInfo* const theirs = ToldOf(device);
  return theirs == nullptr ? "" : theirs->ucx_way;
}

const PeerDeviceInfo* PeerTable::ToldOf(GlobalDeviceId device) const {
  home_.Check();
  for (const auto& link : links_) {
    if (link == nullptr || link->state != State::kUp) continue;
    for (const PeerDeviceInfo& theirs : link->hello.devices) {
      if (theirs.id == device) return &theirs;
    }
  }
  return nullptr;
}

void PeerTable::Lose(Link& link, const absl::Status& why) {
  if (link.visiting) return EndVisit(link, why);
  const bool established = link.state == State::kUp;
  FlightRecorder::Get().Record("peer.lost", link.id.value(), established, 0, why.message());
  Say(link, why, std::exchange(link.goodbye, false) || leaving_);
  // First of all: a peer that still copies from our arenas must not believe what it reads from here
  // on.
  if (link.our_page != nullptr) link.our_page->Revoke();
  link.our_page.reset();
  if (link.stream != nullptr) link.stream->Close(why);
  link.stream.reset();
  link.number = ++streams_;
  link.proven = false;
  link.secret.clear();
  link.state = State::kLost;
  link.since = control_.Now();
  link.error = why;
  link.mapped = false;
  link.order = FrameOrder();
  link.next_event = 1;
  link.ending.reset();
  link.unsaid.reset();
  link.mapped_unsettled = false;
  for (LinkRoute* const route : routes_) route->Stop(link.id, why);
  link.retry_at = link.wanted ? control_.Now() + link.backoff : absl::InfiniteFuture();
  link.backoff = std::min(link.backoff * 2, kBackoffMax);
  CloseSockets(link);
  driver_->OnPeerLost(link.id, why, established);
  Tried(link);
  LookWhoIsLeft();
}

void PeerTable::Knock(Link& link) {
  link.knock = ++last_knock_;
  dialer_->Knock(link.config.address, options_.node,
                 [this, peer = link.id, knock = link.knock](absl::Status status) {
                   // Since it was asked the node may have left, come back, or moved to another
                   // address.
                   if (Find(peer) == nullptr || Find(peer)->knock != knock) return;
                   Link& link = *Find(peer);
                   link.knock = 0;
                   if (link.stream != nullptr) return;
                   if (status.ok()) {
                     ++link.vain_knocks;  // forgotten if the promised dial comes
                   } else {
                     OnRefused(link, Annotate(status, absl::StrCat("knock at ", link.config.node)));
                   }
                   link.retry_at = control_.Now() + link.backoff;
                   link.backoff = std::min(link.backoff * 2, kBackoffMax);
                 });
}

absl::Duration PeerTable::VisitPause() const {
  return std::max(options_.visit_every, links_.size() * kVisitGap);
}

absl::Time PeerTable::Visit(Link& link, absl::Time now) {
  if (link.stream != nullptr || link.wanted || link.knock != 0) return absl::InfiniteFuture();
  if (now < link.visit_at) return link.visit_at;
  Dial(link, /*visiting=*/true);
  return now + kHeartbeat;
}

void PeerTable::EndVisit(Link& link, const absl::Status& why) {
  link.visiting = false;
  link.stream->Close(why);
  link.stream.reset();
  link.number = ++streams_;
  link.state = link.error.ok() ? State::kIdle : State::kLost;
  link.since = control_.Now();
  link.visit_at = link.since + VisitPause();
  if (link.wanted) link.retry_at = link.since;
}

absl::Time PeerTable::OnTime(absl::Time now) {
  home_.Check();
  if (leaving_) return absl::InfiniteFuture();
  absl::Time next = std::min(DropLateCallers(now), DropLatePartings(now));
  for (const auto& entry : links_) {
    if (entry == nullptr) continue;
    Link& link = *entry;
    if (link.stream != nullptr) {
      const absl::Duration patience = link.state == State::kConnecting ? kDialTimeout : kSilence;
      if (now >= link.last_heard + patience) {
        Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                         absl::StrCat(link.config.node, " at ", link.config.address,
                                      " was silent for ", DurationText(patience))));
      } else if (link.unsaid.has_value() && now >= link.unsaid_until) {
        Reject(link, absl::Status(*link.unsaid));
      } else if (link.stream->waiting() > kMostWaiting) {
        Lose(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                         absl::StrCat(link.config.node, " at ", link.config.address,
                                      " does not take what it is told: ", link.stream->waiting(),
                                      " messages wait")));
      } else {
        if (link.state == State::kSettling && now >= link.since + kSocketTimeout) {
          Settle(link, absl::StrCat("no answer at ", link.hello.peer_socket));
          bool known = false;
          for (LinkRoute* const route : routes_) known |= route->GiveUp(link.id, kSocketTimeout);
          if (known) GoUp(link);
        }
        if (now >= link.last_sent + kHeartbeat) {
          link.stream->Send({});
          link.last_sent = now;
        }
        next = std::min({next, link.last_heard + patience, link.last_sent + kHeartbeat});
        if (link.state == State::kSettling) next = std::min(next, link.since + kSocketTimeout);
        if (link.unsaid.has_value()) next = std::min(next, link.unsaid_until);
        AskForArenas(link);
        if (!link.unasked.empty()) next = std::min(next, now + kAskAgain);
      }
    }
    if (link.stream == nullptr && link.knock == 0 && now >= link.retry_at) {
      link.retry_at = absl::InfiniteFuture();
      if (Dials(link) || link.vain_knocks >= kVainKnocks) {
        link.vain_knocks = 0;
        Dial(link);
        next = std::min(next, now + kHeartbeat);
      } else {
        Knock(link);
      }
    }
    next = std::min(next, Visit(link, now));
    if (link.stream == nullptr) next = std::min(next, link.retry_at);
    if (!link.awaiting.empty()) {
      if (now >= link.awaiting_until) {
        Tried(link);
      } else {
        next = std::min(next, link.awaiting_until);
      }
    }
  }
  return next;
}

std::vector<PeerTable::Row> PeerTable::List() const {
  home_.Check();
  constexpr const char* kNames[] = {"idle", "connecting", "connecting", "up", "lost"};
  std::vector<Row> rows;
  for (const auto& link : links_) {
    if (link == nullptr) continue;
    Row row;
    row.node = link->config.node;
    row.address = link->config.address;
    row.state = kNames[static_cast<int>(link->visiting ? State::kIdle : link->state)];
    if (link->state == State::kUp) {
      row.incarnation = link->hello.incarnation;
      row.version = link->hello.daemon_version;
    }
    row.error = link->state == State::kUp ? (link->mapped ? "" : "mapped: " + link->mapped_error)
                                          : std::string(link->error.message());
    row.mapped = link->mapped;
    row.drains_until = driver_->engine().DrainsUntil(link->id);
    row.devices = link->config.devices;
    for (const PeerDeviceInfo& device : link->hello.devices) {
      row.told.push_back({device.id, device.name, device.gpu, device.uuid});
    }
    rows.push_back(std::move(row));
  }
  AddStrangers(rows);
  return rows;
}

// --- Peers that come and leave by a reload. A peer that has left has no link. Whatever comes late
// from its streams, sockets and lanes finds no link, or one with other numbers.

void PeerTable::Add(PeerId peer, PeerConfig config) {
  home_.Check();
  FERRY_CHECK(peer.value() <= links_.size() && peer != self_);
  {
    MutexLock lock(pages_mutex_);
    if (peer.value() == pages_.size()) pages_.push_back({config.node, nullptr});
  }
  if (peer.value() == links_.size()) links_.emplace_back();
  FERRY_CHECK(links_[peer.value()] == nullptr);
  // The node may have called before it was known.
  const std::string name = Printable(config.node);
  std::erase_if(strangers_, [&](const Stranger& stranger) { return stranger.node == name; });
  FERRY_LOG(info, "peer.added", LogFields("peer", config.node), "to be found at {}",
            config.address);
  auto link = std::make_unique<Link>();
  link->id = peer;
  link->config = std::move(config);
  links_[peer.value()] = std::move(link);
  Link& added = *links_[peer.value()];
  added.since = control_.Now();
  added.visit_at = control_.Now() + VisitPause();
}

// Ends the link, if there is one, by our own decision.
void PeerTable::Part(Link& link, const absl::Status& why) {
  if (link.visiting) EndVisit(link, why);
  if (link.stream == nullptr) return;
  link.goodbye = true;
  if (link.proven) {
    Reject(link, why);
  } else {
    Lose(link, why);
  }
}

absl::Status PeerTable::Remove(PeerId peer, bool comes_again) {
  home_.Check();
  Link& link = *Find(peer);
  const absl::Status why =
      Error(absl::StatusCode::kPermissionDenied, Reason::kNotAllowed,
            absl::StrCat("link between ", options_.node, " and ", link.config.node, ": ",
                         link.config.node,
                         comes_again ? " has other devices now by" : " is no longer among",
                         " membership.nodes of ", options_.node));
  for (auto it = callers_.begin(); it != callers_.end();) {
    const auto caller = it++;
    if (caller->second.peer == peer) Refuse(caller, why);
  }
  FERRY_LOG(info, "peer.removed", LogFields("peer", link.config.node), "{}",
            std::string(why.message()));
  link.wanted = false;
  Part(link, why);
  Tried(link);
  links_[peer.value()].reset();
  return why;
}

void PeerTable::Move(PeerId peer, const std::string& address) {
  home_.Check();
  Link& link = *Find(peer);
  link.config.address = address;
  link.knock = 0;
  link.backoff = kBackoffMin;
  link.vain_knocks = 0;
  Part(link, Error(absl::StatusCode::kUnavailable, Reason::kPeerUnreachable,
                   absl::StrCat("link between ", options_.node, " and ", link.config.node,
                                ": by membership.nodes of ", options_.node, " ", link.config.node,
                                " is at ", address, " now")));
  if (link.wanted) link.retry_at = control_.Now();
}

}  // namespace ferry
