// SPDX-License-Identifier: Apache-2.0
// The `ucx` route: tag send and receive between arenas, zero-copy, over what UCX offers. libucp is
// opened at run time; one worker per lane and kind of peer ("shm": same host and user; "net": all
// else).
//
// Memory of a GPU UCX takes as it is if it knows CUDA memory, and if the bytes are contiguous; else
// they travel by way of host memory (transfer/staging). That is each end's own affair: what is on
// the wire is the same.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "device/copier.h"
#include "device/lane.h"
#include "transfer/staging/host_staging.h"
#include "transfer/transport.h"

namespace ferry {

struct UcxApi;  // the vendor table

// Opened once a process: `library`, a name or a path; "": the one that comes with the program or
// the host's. The error says why there is no UCX (ROUTE_UNAVAILABLE).
absl::StatusOr<const UcxApi*> LoadUcx(const std::string& library = "");
// Why the host's is opened, not Ferry's own, where no library is named; "": ours is.
std::string WhyHostsUcx();
std::string UcxVersion(const UcxApi& api);
// Those variables of the environment that UCX is not given, as "NAME=value": what they say is
// settled, since transfers end at all only with it.
std::vector<std::string> UcxNotTaken();
// By which devices it goes if it is given these (UcxOptions::net_devices).
std::string UcxDevices(const std::string& given);
// Whether this host has any: without one UCX that is given a GPU's memory copies it itself, slowly.
bool HasRdmaAdapters();

struct UcxOptions {
  std::string shm_tls = "posix,sysv,cma,self";  // UCX_TLS of "shm" workers; "" turns them off
  std::string net_tls = "tcp,rc,ud,dc,self";    // UCX_TLS of "net" workers
  // UCX_NET_DEVICES of "net" workers; "": as the environment says, else all.
  std::string net_devices;
  // Of a GPU's lane: UCX is given the GPU's memory, if it can take it.
  bool net_direct = true;
  bool shm_direct = true;
  std::string why_staged;  // if neither, for people
  // addresses() say something else to this peer from here on, or to all of them, who must be told;
  // may be null. On the lane.
  std::function<void(std::optional<PeerId>)> moved = {};
};

struct UcxAddressBlob {
  std::string kind;  // "shm" or "net"
  std::string address;
  // By a device of the peer that is told the address: how often this lane's endpoint to that device
  // was closed by force while both daemons lived; what is not named, never. UCX pairs the endpoints
  // of two workers by how many each has opened, so both ends close theirs equally often: the larger
  // number holds, and the end that has the smaller one closes its own before it is used again.
  absl::flat_hash_map<GlobalDeviceId, uint64_t> closings = {};
};

class UcxTransport : public Transport {
 public:
  // Makes context and workers on the lane's thread (this call waits for it) and registers the
  // poller. `staging`: of a GPU; outlives this.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(const UcxApi& api, UcxOptions options,
                                                              Lane& lane, OpSink sink,
                                                              GpuStaging* staging = nullptr);
  // Cancels and answers everything, closes endpoints by force, waits for the lane.
  ~UcxTransport() override;

  // Where peers reach this lane. Any thread. What had to be closed (a lost peer held requests of
  // ours) is not among them any more: shared memory for good, so that the next hello agrees on
  // something else; all else until it has begun anew.
  // What they say of closings is of `peer`.
  std::vector<UcxAddressBlob> addresses(PeerId peer) const;
  // Whether peers of that kind can be reached, now or when it has begun anew. Any thread.
  bool Reaches(const std::string& kind) const;
  // How this lane's memory gets to UCX, for people: "direct", "staged: ..." and why. Any thread.
  const std::string& way() const;

  // --- Lane only.
  // How to reach a device of a peer. Called when a link comes up, before any op names it. What was
  // opened to the same address before serves again, unless the peer has closed its end more often
  // (`closings`, of UcxAddressBlob by our device): then what is on it ends (ABORTED/COMM_ABORTED).
  void AddPeer(PeerId peer, GlobalDeviceId device, const UcxAddressBlob& address,
               uint64_t closings);
  // Ends every op with this peer with `why`, for which others are refused until AddPeer; each is
  // answered once its requests have returned. An endpoint that holds them for longer than 250 ms is
  // closed by force; if that does not help within another 250 ms, or of shared memory, where it
  // cannot be, the whole worker.
  void RemovePeer(PeerId peer, const absl::Status& why);
  void Launch(std::vector<TransportOp> ops) override;
  // A receive is cancelled, but for what is under way. A send cannot be taken back: it ends when
  // the peer has taken or dropped it. If either takes longer than 250 ms its endpoint is closed by
  // force and what else was on it ends with ABORTED/COMM_ABORTED; the next op opens it again. If
  // that takes longer than 250 ms the worker is thrown away, and what else was on it ends in the
  // same way. Of shared memory it takes as long as it takes.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  struct Impl;
  explicit UcxTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
