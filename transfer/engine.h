// SPDX-License-Identifier: Apache-2.0
// TransferEngine decides the life of every transfer of one daemon: it matches halves, compares
// them, talks with the peers' engines, picks routes, orders launches, and ends each transfer
// exactly once.
//
// Pure: time is an argument, there is no thread, socket or memory. What it wants done it collects
// in an Outbox that its driver takes after each call (or after several); what happened comes back
// by On...(). Home: control.
//
// Who decides: the destination's daemon. The life of a send to another daemon:
//   post -> Offer -> [Matched] -> [Ready] -> Go (tcp, ucx) or nothing (mapped: the destination
//   copies)
//   -> Done
// A link carries the messages in order; when it is lost, everything agreed on it ends on both
// sides.
//
// At its deadline what was not matched asks the other node what waits there instead (Withdraw and
// Done, Seek and Sought), so that its error can tell.
//
// Cancel, poison, deadline and a client's death end a transfer only before its launch. Afterwards a
// send waits for Done (the destination says whether it was too late), and a deadline of a transfer
// that hangs in its launch aborts it (EXECUTING).
//
// A prepared transfer is armed: its launch lasts until it is aborted. It is armed at the
// destination and, on mapped, tcp and nccl, at the source too. Its deadline counts only until it is
// armed. Cancel, poison and a client's death end an armed transfer by aborting its launch. Lanes
// fire it without the engine. On ucx each firing is an ordinary launch, of which the ends agree by
// Go and Done; after it the transfer waits for the next firing (WordWatch, Fired). A prepared
// transfer that ends takes the others of its batch along.
//
// Route nccl: the destination hands a ready pair to the leader of the two devices' clique (the
// owner of the lower one), which has a communicator opened at both ends if there is none, and makes
// groups of them (transfer/clique/group_leader.h) that are launched when both lanes are granted
// (transfer/clique/reservations.h). A transfer cannot be aborted there alone: its deadline only
// keeps what is left of it out of further groups. A group that fails or hangs past `group_deadline`
// ends the communicator's attempt at both ends, with all groups on it. Prepared ones are armed at
// both ends, as bundles: those of the same two batches. When the words of both ends allow a firing
// (OnFiringWanted, Fire) it is put into groups of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/home.h"
#include "base/ids.h"
#include "transfer/clique/group.h"
#include "transfer/engine_options.h"
#include "transfer/engine_view.h"
#include "transfer/outbox.h"
#include "transfer/peer_message.h"
#include "transfer/route_table.h"
#include "transfer/types.h"

namespace ferry {

class TransferEngine {
 public:
  using Options = EngineOptions;
  using Bounds = EngineOptions::Bounds;

  TransferEngine(DeviceMap devices, Options options);
  ~TransferEngine();
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  // From now on. What is beyond a smaller bound stays, and nothing is added to it.
  void SetBounds(const Bounds& bounds);

  // --- From sessions.

  // Entry errors of a batch: index and why. Checks what only the engine knows: unknown devices,
  // routes that cannot be, keys in use (also twice within the batch). Empty means that Post will
  // take it.
  struct EntryError {
    size_t index = 0;
    absl::Status status;
  };
  std::vector<EntryError> Check(absl::Span<const TransferSpec> batch) const;
  // Posts a checked batch, or a part of one unless it is prepared, and takes what the specs hold;
  // transfer i gets id MakeTransferId(session, first_sequence + i).
  void Post(absl::Time now, SessionId session, uint64_t first_sequence,
            absl::Span<TransferSpec> batch);
  // The data of a posted transfer is defined (answer to a WordWatch, or of one that has no value to
  // be watched). Unknown ids are ignored.
  void OnDefined(absl::Time now, TransferId transfer);
  // Asks a transfer to end with `why` (CANCELLED/CANCELLED, ABORTED/POISONED ...). A posted
  // transfer ends so only before its launch; one that is launched goes on. A prepared transfer ends
  // also if it is armed. False if the transfer is over or never was.
  bool Cancel(absl::Time now, TransferId transfer, const absl::Status& why);
  // The session's client is gone: undefined sends are poisoned (ABORTED/POISONED), the rest that is
  // not launched ends with ABORTED/PEER_CLIENT_GONE at the other end. Every transfer of it still
  // ends here, if not at once then by OnTime.
  void EndSession(absl::Time now, SessionId session, absl::string_view why);

  // The session is a member of `domain` on our device `device` from now until it ends (Members): a
  // half that waits for its partner from there ends with ABORTED/PEER_CLIENT_GONE when the last
  // member is gone, here and at every peer; so does one that is posted later, until somebody joins
  // again. RESOURCE_EXHAUSTED/QUEUE_FULL: the session has joined on too many devices.
  absl::Status Join(absl::Time now, SessionId session, const std::string& domain,
                    GlobalDeviceId device, absl::string_view name);

  // This daemon drains from now on. `until`: the time at which it will end what is still in flight
  // (infinite: nobody has said when; none: it serves again). While it drains, its driver posts only
  // what continues something in flight. Peers are told. A receive there that waits for a send of
  // ours, and a send of theirs that no receive here waits for, end at once with
  // UNAVAILABLE/DRAINING. Halves that continue something end so only when nothing is in flight here
  // any more. The caller calls again at `until`.
  void SetDraining(absl::Time now, std::optional<absl::Time> until);

  // --- From membership.

  // A further node, with devices that no other one has. A PeerId is a node's name: who has left and
  // comes again has the same one, and nobody else ever gets it.
  PeerId AddPeer(const std::string& name, absl::Span<const GlobalDeviceId> node_devices);
  // A peer has left, with its devices. What is posted with it ends with UNAVAILABLE/
  // PEER_UNREACHABLE and `why`, at once or when the lane answers.
  void RemovePeer(absl::Time now, PeerId peer, const absl::Status& why);
  const DeviceMap& devices() const;

  // --- From peers.

  // A link is up; `routes` is what can be had with this peer. What waited for the link goes out.
  // `gpus`: those of its devices.
  void OnPeerUp(absl::Time now, PeerId peer, RouteTable routes,
                absl::flat_hash_set<GlobalDeviceId> gpus = {});
  void OnPeerRoutes(PeerId peer, RouteTable routes);
  // The link is lost (or, for a link never up, could not be opened: `established` false; then
  // nothing ends, transfers wait for their deadline and tell `why`).
  void OnPeerLost(absl::Time now, PeerId peer, const absl::Status& why, bool established);
  // Messages that make no sense (unknown ids after a cancel, wrong state) are ignored and counted.
  void OnMessage(absl::Time now, PeerId peer, PeerMessage&& message);
  // Whether more of the peer's messages follow in a moment (PeerEvents::more): groups with the peer
  // wait for them, at most GroupCutter::Options::age. The call comes before OnMessage for what came
  // in the same frame.
  void OnMore(absl::Time now, PeerId peer, bool more);

  // --- From lanes.

  // The launch is over: our memory is no longer touched. A status with reason ROUTE_UNAVAILABLE
  // means that nothing was moved and the next route may be tried.
  void OnLaunchDone(absl::Time now, TransferId transfer, uint32_t attempt,
                    const absl::Status& status);

  // The word of our end allows the next firing of a bundle (see Armed). The next call for the
  // bundle comes only when that firing is over.
  void OnFiringWanted(absl::Time now, uint64_t bundle);

  // A group of ours is over: our memory is no longer touched. ROUTE_UNAVAILABLE means that the
  // communicator cannot be had: its transfers try the next route. `left`, if not null: OnGroupDone
  // does not go on with the halves of the group, and appends their ids to `left`. The caller passes
  // them to GoOn in parts, because a group may have a thousand halves.
  void OnGroupDone(absl::Time now, uint64_t group, const absl::Status& status,
                   std::vector<TransferId>* left = nullptr);
  void GoOn(absl::Time now, absl::Span<const TransferId> left);

  // The next two answer a CommunicatorOpen. An attempt that has ended meanwhile is ignored.
  void OnCommunicatorId(absl::Time now, const Clique& clique, uint32_t attempt,
                        std::string unique_id);
  void OnCommunicatorOpened(absl::Time now, const Clique& clique, uint32_t attempt);
  // The communicator could not be opened, or has failed since; an operator's abort calls this too.
  // A CommunicatorEnd follows. ROUTE_UNAVAILABLE means that it cannot be had: what waits for it
  // tries the next route.
  void OnCommunicatorFailed(absl::Time now, const Clique& clique, uint32_t attempt,
                            const absl::Status& status);
  // Has the clique's communicator closed: a CommunicatorEnd follows. If `busy` is false, it is
  // closed only if it is idle at both ends. If `busy` is true, it is closed when the groups on
  // their way are over, and what waits goes on the next attempt.
  void EvictCommunicator(absl::Time now, const Clique& clique, bool busy = false);
  // Has the clique's communicator opened. INVALID_ARGUMENT/DEVICE_UNKNOWN: the clique is not of a
  // device of ours and a device of a peer. FAILED_PRECONDITION/ROUTE_UNAVAILABLE: there can be
  // none.
  absl::Status WarmCommunicator(absl::Time now, const Clique& clique);

  // Kernels of this daemon found the SMs of GPU `device` busy. Until `until` RouteChoice takes it
  // that a kernel waits there before it starts.
  void OnSmsBusy(absl::Time now, GlobalDeviceId device, absl::Time until);

  // --- From the clock.

  // Ends what is past its deadline. Call at NextDeadline() or later.
  void OnTime(absl::Time now);
  absl::Time NextDeadline() const;

  // `cut_groups` false: pairs that could go in a group wait for the next call, since more of them
  // are about to come.
  Outbox TakeOutbox(bool cut_groups = true);

  // --- To look at.

  const EngineView& view() const;
  // What a transfer of Outbox::long_waits waits for, for how long, and what there is instead. "" if
  // it is over. Not const, and so not the view's: looking for what there is instead takes from what
  // may be spent on that.
  std::string WaitText(absl::Time now, TransferId transfer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  [[no_unique_address]] HomeChecker home_;
};

}  // namespace ferry
