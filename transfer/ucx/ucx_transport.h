// SPDX-License-Identifier: Apache-2.0
// The `ucx` route: tag send and receive between arenas, zero-copy, over what UCX offers. libucp is
// opened at run time. There is one worker for each lane and kind of peer ("shm": same host and
// user; "net": all others).
//
// UCX gets GPU memory as it is if it knows CUDA memory and the bytes are contiguous; else the bytes
// go by way of host memory (transfer/staging). Each end decides this for itself: the wire carries
// the same. Home: the lane, but for constructor, destructor and what says so.
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

// Opens UCX, once a process. `library`: a name or a path; "": the UCX that comes with the program,
// else the host's. The error says why there is no UCX (ROUTE_UNAVAILABLE).
absl::StatusOr<const UcxApi*> LoadUcx(const std::string& library = "");
// Without a library's name: why the host's UCX is opened and not Ferry's own; "": Ferry's own is
// opened.
std::string WhyHostsUcx();
std::string UcxVersion(const UcxApi& api);
// Variables of the environment that UCX is not given, as "NAME=value": what they set is fixed,
// since only so do all transfers end.
std::vector<std::string> UcxNotTaken();
// The network devices that UCX uses if it is given these (UcxOptions::net_devices).
std::string UcxDevices(const std::string& given);
// True if there is an RDMA adapter. Without one UCX copies GPU memory through the CPU, slowly.
bool HasRdmaAdapters();

struct UcxOptions {
  std::string shm_tls = "posix,sysv,cma,self";  // UCX_TLS of "shm" workers; "" turns them off
  std::string net_tls = "tcp,rc,ud,dc,self";    // UCX_TLS of "net" workers
  // UCX_NET_DEVICES of "net" workers; "": what the environment says, else all devices.
  std::string net_devices;
  // A GPU's lane only: give UCX the GPU's memory, if it can take it.
  bool net_direct = true;
  bool shm_direct = true;
  std::string why_staged;  // for people: why not, if both are false
  // Called on the lane when peers whose links are up must be told of addresses() again: this peer,
  // whose endpoint was closed by force, or all of them, because a worker has begun anew. May be
  // null.
  std::function<void(std::optional<PeerId>)> moved = {};
};

// How peers reach a lane's worker.
struct UcxAddressBlob {
  std::string kind;  // "shm" or "net"
  std::string address;
  // By device of the peer that is told the address: how often this lane's endpoint to that device
  // was closed by force while both daemons lived; a device that is not named, never. UCX pairs the
  // endpoints of two workers by how many each has opened, so both ends must have closed theirs
  // equally often. The larger number counts: the end with the smaller one closes its own endpoint
  // before it uses it again.
  absl::flat_hash_map<GlobalDeviceId, uint64_t> closings = {};
};

class UcxTransport : public Transport {
 public:
  // Makes contexts and workers on the lane's thread, for which this call waits, and registers the
  // pollers. `staging`: GPUs only; outlives this.
  static absl::StatusOr<std::unique_ptr<UcxTransport>> Create(const UcxApi& api, UcxOptions options,
                                                              Lane& lane, OpSink sink,
                                                              GpuStaging* staging = nullptr);
  // Cancels and answers all ops, closes endpoints by force, waits for the lane.
  ~UcxTransport() override;

  // Where peers reach this lane; `closings` are for `peer`. Any thread. A worker of shared memory
  // is not listed while a lost peer holds requests of ours, so that the next hello agrees on
  // another route. A worker that had to be closed for that is not listed: one of shared memory
  // never again, one of the network when it has begun anew.
  std::vector<UcxAddressBlob> addresses(PeerId peer) const;
  // Whether peers of that kind can be reached, now or once the worker has begun anew. Any thread.
  bool Reaches(const std::string& kind) const;
  // How this lane's memory gets to UCX, for people: "direct", or "staged: ..." with why. Any
  // thread.
  const std::string& way() const;

  // --- Lane only.
  // The link with a peer is up: how to reach one of its devices. Before any op names it. An
  // endpoint that was opened to the same address serves again, unless the peer has closed its end
  // more often than this lane (`closings`, the number in UcxAddressBlob for our device): then ops
  // on it end (ABORTED/COMM_ABORTED).
  void AddPeer(PeerId peer, GlobalDeviceId device, const UcxAddressBlob& address,
               uint64_t closings);
  // Ends every op with this peer with `why`, and refuses further ops with `why` until AddPeer().
  // Each op is answered once its requests have returned. An endpoint that holds requests for more
  // than 250 ms is closed by force. If that does not help within another 250 ms, or if the endpoint
  // is of shared memory and cannot be closed by force, the whole worker is closed.
  void RemovePeer(PeerId peer, const absl::Status& why);
  void Launch(std::vector<TransportOp> ops) override;
  // A receive is cancelled, but for what is under way. A send cannot be taken back: it ends when
  // the peer has taken or dropped it. If either takes more than 250 ms the endpoint is closed by
  // force, and other ops on it end with ABORTED/COMM_ABORTED; the next op opens it again. If that
  // takes more than 250 ms the worker is thrown away, and other ops on it end likewise. With shared
  // memory there is no force: it takes as long as it takes.
  void Abort(TransferId transfer, uint32_t attempt, const absl::Status& why) override;

 private:
  struct Impl;
  explicit UcxTransport(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry
