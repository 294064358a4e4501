// SPDX-License-Identifier: Apache-2.0
// C++17 over ferry.h: owning handles, batches from vectors, futures and callbacks. Header only;
// throws nothing itself and works with -fno-exceptions. ferry.h says what the calls mean.
//
//   auto session = ferry::Session::Open();
//   if (!session) return Fail(session.status());
//   auto arena = session->CreateArena(0, bytes);
//   auto batch = session->Send(0, {ferry::Transfer(remote, "key", {arena->Range(0, bytes)})});
//   if (ferry::Status status = batch->Wait(); !status.ok()) return Fail(status);
#ifndef FERRY_FERRY_HPP_
#define FERRY_FERRY_HPP_

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ferry/ferry.h"
#include "ferry/status.hpp"

namespace ferry {

using Duration = std::chrono::nanoseconds;
inline constexpr Duration kForever = Duration::max();

inline uint64_t Nanoseconds(Duration duration) {
  if (duration == kForever) return UINT64_MAX;
  return duration.count() > 0 ? static_cast<uint64_t>(duration.count()) : 0;
}

// A list's data as the C ABI takes it: null if the list is empty.
template <typename List>
auto DataOrNull(const List& list) -> decltype(list.data()) {
  return list.empty() ? nullptr : list.data();
}

using Range = ferry_range;
using StridedRange = ferry_strided_range;

// Blocks of equal size picked by index: see ferry_block_table.
struct BlockTable {
  const ferry_arena* arena = nullptr;
  uint64_t offset = 0;
  uint64_t block_bytes = 0;
  std::vector<uint64_t> indices;
};

class Arena {
 public:
  Arena() = default;
  explicit Arena(ferry_arena* owned) : arena_(owned) {}

  void* data() const { return ferry_arena_data(arena_.get()); }
  uint64_t bytes() const { return ferry_arena_bytes(arena_.get()); }
  uint64_t id() const { return ferry_arena_id(arena_.get()); }
  uint64_t device() const { return ferry_arena_device(arena_.get()); }
  ferry::Range Range(uint64_t offset, uint64_t length) const {
    return {arena_.get(), offset, length};
  }
  ferry::Range All() const { return Range(0, bytes()); }
  ferry::StridedRange Strided(uint64_t offset, uint64_t block_bytes, uint64_t stride_bytes,
                              uint64_t count) const {
    return {arena_.get(), offset, block_bytes, stride_bytes, count};
  }
  ferry::BlockTable Blocks(uint64_t offset, uint64_t block_bytes,
                           std::vector<uint64_t> indices) const {
    return {arena_.get(), offset, block_bytes, std::move(indices)};
  }
  // Copies, whatever device the arena is on: see ferry_arena_read.
  Status Read(uint64_t offset, void* to, uint64_t length) const {
    return Status(ferry_arena_read(arena_.get(), offset, to, length));
  }
  Status Write(uint64_t offset, const void* from, uint64_t length) {
    return Status(ferry_arena_write(arena_.get(), offset, from, length));
  }
  Status Release() { return Status(ferry_arena_release(arena_.get())); }
  ferry_arena* get() const { return arena_.get(); }
  // Gives up ownership: the caller frees the arena.
  ferry_arena* release() { return arena_.release(); }

 private:
  struct Free {
    void operator()(ferry_arena* arena) const { ferry_arena_free(arena); }
  };
  std::unique_ptr<ferry_arena, Free> arena_;
};

// One end of one transfer: see ferry_transfer. At most one of `ranges`, `strided` and `blocks`.
struct Transfer {
  Transfer() = default;
  Transfer(uint64_t remote_device, std::string key, std::vector<ferry::Range> ranges = {})
      : remote_device(remote_device), key(std::move(key)), ranges(std::move(ranges)) {}

  struct DefinedAt {
    uint32_t timeline;
    uint64_t value;
  };

  uint64_t remote_device = 0;
  std::string key;  // 1 to 64 bytes
  std::vector<ferry::Range> ranges;
  std::optional<ferry::StridedRange> strided;
  std::optional<ferry::BlockTable> blocks;
  int data_type = FERRY_UNSPECIFIED;
  std::optional<std::vector<int64_t>> shape;
  std::optional<DefinedAt> defined_at;
  Duration deadline{0};  // 0: the batch's
};

struct PostOptions {
  std::string domain;
  uint32_t over_timeline = 0;  // 0: the library picks one for each device
  Duration deadline{0};        // 0: the daemon's default
  int32_t priority = 0;
  int route = FERRY_ROUTE_ANY;
  std::string request_id;
  uint64_t continues = 0;  // a transfer of this session, or 0

  ferry_post_options Raw() const {  // points into this
    ferry_post_options raw = {};
    raw.struct_size = sizeof(raw);
    raw.domain = DataOrNull(domain);
    raw.domain_bytes = domain.size();
    raw.over_timeline = over_timeline;
    raw.deadline_ns = Nanoseconds(deadline);
    raw.priority = priority;
    raw.route = route;
    raw.request_id = DataOrNull(request_id);
    raw.request_id_bytes = request_id.size();
    raw.continues = continues;
    return raw;
  }
};

class Batch {
 public:
  Batch() = default;
  explicit Batch(ferry_batch* owned) : batch_(owned) {}

  size_t size() const { return ferry_batch_size(batch_.get()); }
  uint64_t first_id() const { return ferry_batch_first_id(batch_.get()); }
  uint32_t timeline() const { return ferry_batch_timeline(batch_.get()); }
  uint64_t first_value() const { return ferry_batch_first_value(batch_.get()); }

  Status Wait(Duration timeout = kForever) {
    return Status(ferry_batch_wait(batch_.get(), Nanoseconds(timeout)));
  }
  bool over() const { return ferry_batch_over(batch_.get()) != 0; }
  Status TransferStatus(size_t index) {
    return Status(ferry_batch_transfer_status(batch_.get(), index));
  }
  Result<std::vector<int>> Routes() {  // FERRY_ROUTE_... of each transfer
    std::vector<int> routes(size());
    Status status(ferry_batch_routes(batch_.get(), routes.data()));
    using Made = Result<std::vector<int>>;
    return status.ok() ? Made(std::move(routes)) : Made(std::move(status));
  }
  Status Cancel() { return Status(ferry_batch_cancel(batch_.get())); }
  Status Poison(const std::string& why) {
    return Status(ferry_batch_poison(batch_.get(), why.c_str()));
  }

  // Calls `done()` once when the batch is over, on a thread of the library (or here, if it is
  // over). At most once a batch, and not together with Future(). After an error `done` is never
  // called.
  template <typename Done>
  Status OnOver(Done done) {
    auto kept = std::make_unique<Done>(std::move(done));
    Status status(ferry_batch_on_over(
        batch_.get(),
        [](void* argument) {
          std::unique_ptr<Done> mine(static_cast<Done*>(argument));
          (*mine)();
        },
        kept.get()));
    if (status.ok()) static_cast<void>(kept.release());  // the callback's
    return status;
  }

  // How the batch ended, as Wait() says. The future takes the batch along.
  std::future<Status> Future() && {
    struct Pending {
      Batch batch;
      std::promise<Status> promise;
    };
    auto pending = std::make_unique<Pending>();
    pending->batch = std::move(*this);
    std::future<Status> future = pending->promise.get_future();
    Status status(ferry_batch_on_over(
        pending->batch.get(),
        [](void* argument) {
          std::unique_ptr<Pending> mine(static_cast<Pending*>(argument));
          mine->promise.set_value(mine->batch.Wait(Duration{0}));
        },
        pending.get()));
    if (status.ok()) {
      static_cast<void>(pending.release());  // the callback's
    } else {
      pending->promise.set_value(std::move(status));
    }
    return future;
  }

  ferry_batch* get() const { return batch_.get(); }

 private:
  struct Free {
    void operator()(ferry_batch* batch) const { ferry_batch_free(batch); }
  };
  std::unique_ptr<ferry_batch, Free> batch_;
};

// Waits until one of `batches` is over; `index` becomes its place. Returns how it ended. Null
// entries are skipped. See ferry_wait_any.
inline Status WaitAny(const std::vector<Batch*>& batches, size_t* index,
                      Duration timeout = kForever) {
  std::vector<ferry_batch*> raw;
  for (const Batch* batch : batches) raw.push_back(batch != nullptr ? batch->get() : nullptr);
  return Status(ferry_wait_any(raw.data(), raw.size(), Nanoseconds(timeout), index));
}
// OK once all have ended well; else the first failure, whose place `index` becomes. See
// ferry_wait_all.
inline Status WaitAll(const std::vector<Batch*>& batches, Duration timeout = kForever,
                      size_t* index = nullptr) {
  std::vector<ferry_batch*> raw;
  for (const Batch* batch : batches) raw.push_back(batch != nullptr ? batch->get() : nullptr);
  return Status(ferry_wait_all(raw.data(), raw.size(), Nanoseconds(timeout), index));
}

// A batch that is fired again and again: see ferry_prepared.
class Prepared {
 public:
  Prepared() = default;
  explicit Prepared(ferry_prepared* owned) : prepared_(owned) {}

  size_t size() const { return ferry_prepared_size(prepared_.get()); }
  uint64_t first_id() const { return ferry_prepared_first_id(prepared_.get()); }

  Status Fire(uint64_t* firing = nullptr) {
    return Status(ferry_prepared_fire(prepared_.get(), firing));
  }
  Status Wait(uint64_t firing, Duration timeout = kForever) {
    return Status(ferry_prepared_wait(prepared_.get(), firing, Nanoseconds(timeout)));
  }
  // Waits for the last firing that was asked for at this end.
  Status Wait(Duration timeout = kForever) { return Wait(fired(), timeout); }
  uint64_t fired() const { return ferry_prepared_fired(prepared_.get()); }
  uint64_t over() const { return ferry_prepared_over(prepared_.get()); }
  // OK until the batch has ended.
  Status Health() { return Status(ferry_prepared_status(prepared_.get())); }
  bool ended() const { return ferry_prepared_ended(prepared_.get()) != 0; }
  Status Release() { return Status(ferry_prepared_release(prepared_.get())); }
  ferry_prepared* get() const { return prepared_.get(); }

 private:
  struct Free {
    void operator()(ferry_prepared* prepared) const { ferry_prepared_free(prepared); }
  };
  std::unique_ptr<ferry_prepared, Free> prepared_;
};

struct SessionOptions {
  std::string client_dir;        // empty: as ferry_session_options says of NULL
  std::string name;              // empty: the program's
  Duration timeout{0};           // for opening; 0: 10 s
  bool reattach = true;          // outlive the daemon
  Duration reattach_timeout{0};  // 0: until the session is closed
};

// A device anywhere in the cluster; see ferry_cluster_device.
struct ClusterDevice {
  uint64_t global_device_id = 0;
  int kind = 0;
  bool local = false;
  std::string name;
  std::string node;
};

// What ReceiveNew() made.
struct NewBuffers {
  Arena arena;
  std::vector<Range> ranges;
  Batch batch;
};

class Session {
 public:
  Session() = default;
  explicit Session(ferry_session* owned) : session_(owned) {}

  static Result<Session> Open(const SessionOptions& options = {}) {
    ferry_session_options given = {};
    given.struct_size = sizeof(given);
    given.client_dir = options.client_dir.empty() ? nullptr : options.client_dir.c_str();
    given.name = options.name.empty() ? nullptr : options.name.c_str();
    given.timeout_ns = Nanoseconds(options.timeout);
    given.no_reattach = options.reattach ? 0 : 1;
    given.reattach_timeout_ns = Nanoseconds(options.reattach_timeout);
    return Made<Session, ferry_session>(
        [&](ferry_session** session) { return ferry_session_open(&given, session); });
  }
  // Ends the session, as the destructor does.
  void Close() { session_.reset(); }

  Status Health() { return Status(ferry_session_health(session_.get())); }
  // Waits until the daemon is there again.
  Status WaitAttached(Duration timeout = kForever) {
    return Status(ferry_session_wait(session_.get(), Nanoseconds(timeout)));
  }
  uint64_t id() const { return ferry_session_id(session_.get()); }
  std::string_view node() const { return ferry_session_node(session_.get()); }
  ferry_limits limits() const { return ferry_session_limits(session_.get()); }
  std::vector<ferry_device> devices() const {
    std::vector<ferry_device> all(ferry_session_devices(session_.get()));
    for (size_t i = 0; i < all.size(); ++i) all[i] = ferry_session_device(session_.get(), i);
    return all;
  }

  // The devices of the cluster that the daemon knows now.
  Result<std::vector<ClusterDevice>> ClusterDevices() {
    ferry_device_list* list = nullptr;
    Status status(ferry_cluster_devices(session_.get(), &list));
    if (!status.ok()) return Result<std::vector<ClusterDevice>>(std::move(status));
    std::vector<ClusterDevice> all(ferry_device_list_size(list));
    for (size_t i = 0; i < all.size(); ++i) {
      const ferry_cluster_device one = ferry_device_list_at(list, i);
      all[i] = {one.global_device_id, one.kind, one.local != 0, one.name, one.node};
    }
    ferry_device_list_free(list);
    return Result<std::vector<ClusterDevice>>(std::move(all));
  }

  // See ferry_domain_join. An empty `domain` is the uid's.
  Status JoinDomain(const std::string& domain, uint64_t device, const std::string& name) {
    return Status(
        ferry_domain_join(session_.get(), DataOrNull(domain), domain.size(), device, name.c_str()));
  }

  Result<Arena> CreateArena(uint64_t device, uint64_t bytes, unsigned flags = 0) {
    return Made<Arena, ferry_arena>([&](ferry_arena** arena) {
      return ferry_arena_create(session_.get(), device, bytes, flags, arena);
    });
  }
  Result<Arena> ImportArena(uint64_t device, int memfd, uint64_t bytes) {
    return Made<Arena, ferry_arena>([&](ferry_arena** arena) {
      return ferry_arena_import(session_.get(), device, memfd, bytes, arena);
    });
  }

  Result<Batch> Send(uint64_t device, const std::vector<Transfer>& sends,
                     const PostOptions& options = {}) {
    const RawTransfers raw(sends);
    const ferry_post_options given = options.Raw();
    return Made<Batch, ferry_batch>([&](ferry_batch** batch) {
      return ferry_cross_host_send(session_.get(), device, raw.all.data(), raw.all.size(), &given,
                                   batch);
    });
  }
  Result<Batch> Receive(uint64_t device, const std::vector<Transfer>& receives,
                        const PostOptions& options = {}) {
    const RawTransfers raw(receives);
    const ferry_post_options given = options.Raw();
    return Made<Batch, ferry_batch>([&](ferry_batch** batch) {
      return ferry_cross_host_receive(session_.get(), device, raw.all.data(), raw.all.size(),
                                      &given, batch);
    });
  }
  // Batches to be fired again and again; see ferry_prepared.
  Result<Prepared> PrepareSend(uint64_t device, const std::vector<Transfer>& sends,
                               const PostOptions& options = {}) {
    const RawTransfers raw(sends);
    const ferry_post_options given = options.Raw();
    return Made<Prepared, ferry_prepared>([&](ferry_prepared** prepared) {
      return ferry_prepare_send(session_.get(), device, raw.all.data(), raw.all.size(), &given,
                                prepared);
    });
  }
  Result<Prepared> PrepareReceive(uint64_t device, const std::vector<Transfer>& receives,
                                  const PostOptions& options = {}) {
    const RawTransfers raw(receives);
    const ferry_post_options given = options.Raw();
    return Made<Prepared, ferry_prepared>([&](ferry_prepared** prepared) {
      return ferry_prepare_receive(session_.get(), device, raw.all.data(), raw.all.size(), &given,
                                   prepared);
    });
  }
  // Receives into a new arena. The transfers' ranges and blocks are ignored; `bytes` has a size for
  // each transfer.
  Result<NewBuffers> ReceiveNew(uint64_t device, const std::vector<Transfer>& receives,
                                const std::vector<uint64_t>& bytes,
                                const PostOptions& options = {}) {
    const RawTransfers raw(receives);
    const ferry_post_options given = options.Raw();
    NewBuffers made;
    made.ranges.resize(raw.all.size());
    ferry_arena* arena = nullptr;
    ferry_batch* batch = nullptr;
    const size_t count = bytes.size() == raw.all.size() ? bytes.size() : 0;
    Status status(ferry_cross_host_receive_new(session_.get(), device, raw.all.data(), bytes.data(),
                                               count, &given, &arena, made.ranges.data(), &batch));
    if (!status.ok()) return Result<NewBuffers>(std::move(status));
    made.arena = Arena(arena);
    made.batch = Batch(batch);
    return Result<NewBuffers>(std::move(made));
  }

  int TransferRoute(uint64_t id) { return ferry_transfer_route(session_.get(), id); }
  Status Define(uint32_t timeline, uint64_t value) {
    return Status(ferry_define(session_.get(), timeline, value));
  }
  uint64_t DefinedValue(uint32_t timeline) const {
    return ferry_defined_value(session_.get(), timeline);
  }
  uint64_t OverValue(uint32_t timeline) const { return ferry_over_value(session_.get(), timeline); }
  Status WaitOver(uint32_t timeline, uint64_t value, Duration timeout = kForever) {
    return Status(ferry_over_wait(session_.get(), timeline, value, Nanoseconds(timeout)));
  }
  struct Failures {
    uint64_t count = 0, first_failed = 0;
  };
  Failures OverFailures(uint32_t timeline) const {
    Failures failures;
    ferry_over_failures(session_.get(), timeline, &failures.count, &failures.first_failed);
    return failures;
  }
  Status ResetOver(uint32_t timeline) { return Status(ferry_over_reset(session_.get(), timeline)); }

  // Calls `watcher(uint64_t transfer_id, const ferry_status* status)`, as ferry_session_watch says.
  // The watcher must outlive the session.
  template <typename Watcher>
  Status Watch(Watcher* watcher) {
    return Status(ferry_session_watch(
        session_.get(),
        [](void* argument, uint64_t transfer_id, const ferry_status* status) {
          (*static_cast<Watcher*>(argument))(transfer_id, status);
        },
        watcher));
  }

  ferry_session* get() const { return session_.get(); }

 private:
  struct Free {
    void operator()(ferry_session* session) const { ferry_session_close(session); }
  };

  template <typename T, typename Raw, typename Make>
  static Result<T> Made(Make make) {
    Raw* raw = nullptr;
    Status status(make(&raw));
    if (!status.ok()) return Result<T>(std::move(status));
    return T(raw);
  }

  // Transfers as the C ABI takes them; points into the transfers that it was made of.
  struct RawTransfers {
    explicit RawTransfers(const std::vector<Transfer>& transfers) : all(transfers.size()) {
      tables.reserve(transfers.size());  // stay where they are
      for (size_t i = 0; i < all.size(); ++i) Fill(transfers[i], all[i]);
    }
    void Fill(const Transfer& from, ferry_transfer& to) {
      static const int64_t kScalar = 0;
      to.remote_device = from.remote_device;
      to.key = from.key.data();
      to.key_bytes = from.key.size();
      to.ranges = DataOrNull(from.ranges);
      to.range_count = from.ranges.size();
      if (from.strided) to.strided = &*from.strided;
      if (from.blocks) {
        tables.push_back({from.blocks->arena, from.blocks->offset, from.blocks->block_bytes,
                          DataOrNull(from.blocks->indices), from.blocks->indices.size()});
        to.blocks = &tables.back();
      }
      to.data_type = from.data_type;
      if (from.shape) {
        to.dims = from.shape->empty() ? &kScalar : from.shape->data();
        to.dim_count = from.shape->size();
      }
      if (from.defined_at) {
        to.has_defined_at = 1;
        to.defined_timeline = from.defined_at->timeline;
        to.defined_value = from.defined_at->value;
      }
      to.deadline_ns = Nanoseconds(from.deadline);
    }
    std::vector<ferry_transfer> all;
    std::vector<ferry_block_table> tables;
  };

  std::unique_ptr<ferry_session, Free> session_;
};

}  // namespace ferry

#endif  // FERRY_FERRY_HPP_
