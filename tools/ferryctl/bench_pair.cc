// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/bench_pair.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace ferry::tools {
namespace {

// Added to the patience, so that a receiver whose wait ends at its own deadline can still say so.
constexpr absl::Duration kGrace = absl::Seconds(5);

absl::StatusOr<BenchAnswer> ReadAnswer(int socket) {
  BenchAnswer answer;
  ssize_t got;
  do {
    got = recv(socket, &answer, sizeof(answer), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) {
    return Error(absl::StatusCode::kDeadlineExceeded, Reason::kInternal,
                 "the receiver's process does not answer (stopped?)");
  }
  if (got != sizeof(answer)) {
    return Error(absl::StatusCode::kAborted, Reason::kInternal, "the receiver's process is gone");
  }
  if (answer.code != 0) {
    return Error(static_cast<absl::StatusCode>(answer.code), static_cast<Reason>(answer.reason),
                 absl::StrCat("receiver: ", answer.text));
  }
  return answer;
}

absl::Status WriteOrder(int socket, const BenchOrder& order) {
  if (send(socket, &order, sizeof(order), MSG_NOSIGNAL) != sizeof(order)) {
    return ErrnoError(absl::StatusCode::kAborted, Reason::kInternal, "order the receiver", errno);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BenchPair> BenchPair::Open(const BenchPairOptions& options) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError(absl::StatusCode::kInternal, Reason::kInternal, "make a socket pair", errno);
  }
  UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  SpawnOptions spawn;
  spawn.arguments = options.receiver_command;
  spawn.fd = theirs.get();
  ASSIGN_OR_RETURN(ChildProcess receiver, ChildProcess::Spawn(spawn));
  theirs.Reset();
  if (options.patience != absl::InfiniteDuration()) {
    const timeval patience = absl::ToTimeval(options.patience + kGrace);
    setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }

  SessionOptions session;
  session.client_dir = options.client_dir;
  session.name = "bench-sender";
  PostTarget target;
  target.end = End::kSend;
  // A domain that nobody else uses, because measurements may run side by side.
  target.domain = absl::StrCat("bench-", getpid(), "-", MonotonicNanoseconds() % 1'000'000'000);
  target.route = options.route;
  ASSIGN_OR_RETURN(BenchEnd sender, BenchEnd::Open(session, target, options.source));
  sender.set_patience(options.patience);

  BenchOrder open;
  open.kind = BenchOrderKind::kOpen;
  open.device = options.destination;
  // Both ends at one daemon: from its first device to its last.
  if (options.destination < 0 && options.client_dir == options.peer_client_dir) {
    const size_t devices = ferry_session_devices(sender.session());
    open.device =
        static_cast<int64_t>(ferry_session_device(sender.session(), devices - 1).global_device_id);
  }
  open.remote_device = sender.target().device;
  open.route = options.route;
  open.patience_ns = ToFerry(options.patience);
  // No path of a socket is longer.
  FERRY_CHECK(options.peer_client_dir.size() < sizeof(open.client_dir));
  options.peer_client_dir.copy(open.client_dir, sizeof(open.client_dir) - 1);
  target.domain.copy(open.domain, sizeof(open.domain) - 1);
  RETURN_IF_ERROR(WriteOrder(ours.get(), open));
  ASSIGN_OR_RETURN(BenchAnswer answer, ReadAnswer(ours.get()));
  sender.set_remote_device(answer.value);
  return BenchPair(std::move(sender), std::move(receiver), std::move(ours));
}

absl::Status BenchPair::Order(const BenchOrder& order) { return WriteOrder(socket_.get(), order); }
absl::StatusOr<BenchAnswer> BenchPair::Answer() { return ReadAnswer(socket_.get()); }
absl::StatusOr<BenchAnswer> BenchPair::Ask(const BenchOrder& order) {
  RETURN_IF_ERROR(Order(order));
  return Answer();
}

absl::StatusOr<absl::Duration> BenchPair::MakeArenas(uint64_t bytes) {
  RETURN_IF_ERROR(sender_.MakeArena(bytes, 0));
  contents_ += 2;  // the old contents of fresh memory are this pair's own, of some time before
  RETURN_IF_ERROR(sender_.Fill(contents_));
  BenchOrder order;
  order.kind = BenchOrderKind::kArena;
  order.bytes = bytes;
  ASSIGN_OR_RETURN(BenchAnswer answer, Ask(order));
  return absl::Nanoseconds(answer.nanoseconds);
}

absl::Status BenchPair::Renew() {
  contents_ ^= 1;
  RETURN_IF_ERROR(sender_.Fill(contents_));
  BenchOrder order;
  order.kind = BenchOrderKind::kFill;
  order.key = contents_ ^ 1;  // other contents than those that will come; a ping moves both ways
  return Ask(order).status();
}

absl::StatusOr<absl::Duration> BenchPair::CheckAll(absl::Span<BenchPair* const> pairs, Once once) {
  for (BenchPair* pair : pairs) RETURN_IF_ERROR(pair->Renew());
  ASSIGN_OR_RETURN(const absl::Duration took, once());
  for (BenchPair* pair : pairs) RETURN_IF_ERROR(pair->Compare());
  return took;
}

absl::StatusOr<absl::Duration> BenchPair::Check(Once once) {
  BenchPair* const self = this;
  return CheckAll(absl::MakeConstSpan(&self, 1), once);
}

absl::StatusOr<absl::Duration> BenchPair::CheckFirst(Once once) {
  FERRY_CHECK(!sender_.moved());
  ASSIGN_OR_RETURN(const absl::Duration took, once());
  RETURN_IF_ERROR(Compare());
  return took;
}

absl::StatusOr<std::vector<absl::Duration>> BenchPair::Repeat(uint64_t times, Once once) {
  std::vector<absl::Duration> all;
  for (uint64_t i = 0; i < times; ++i) {
    ASSIGN_OR_RETURN(all.emplace_back(), i + 1 == times ? Check(once) : once());
  }
  return all;
}

template <typename Act>
absl::StatusOr<absl::Duration> BenchPair::Measure(const BenchOrder& order, Act act) {
  RETURN_IF_ERROR(Ask(order).status());
  BenchOrder await;
  await.kind = BenchOrderKind::kAwait;
  RETURN_IF_ERROR(Order(await));
  const int64_t start = MonotonicNanoseconds();
  RETURN_IF_ERROR(act());
  ASSIGN_OR_RETURN(BenchAnswer answer, Answer());
  RETURN_IF_ERROR(sender_.Await().status());
  return absl::Nanoseconds(answer.nanoseconds - start);
}

template <typename Post>
absl::StatusOr<absl::Duration> BenchPair::RunAs(BenchOrderKind kind, uint64_t count, uint64_t bytes,
                                                Post post) {
  BenchOrder order;
  order.kind = kind;
  order.key = next_key_;
  order.count = count;
  order.bytes = bytes;
  next_key_ += count;
  return Measure(order, [&] { return post(order.key); });
}

absl::StatusOr<absl::Duration> BenchPair::Run(uint64_t count, uint64_t bytes) {
  return RunAs(BenchOrderKind::kPost, count, bytes,
               [&](uint64_t key) { return sender_.PostMany(key, count, bytes); });
}

absl::StatusOr<absl::Duration> BenchPair::RunBlocks(uint64_t count, uint64_t bytes) {
  return RunAs(BenchOrderKind::kBlocks, count, bytes,
               [&](uint64_t key) { return sender_.PostBlocks(key, count, bytes); });
}

template <typename Do>
absl::Status BenchPair::PrepareAs(BenchOrderKind kind, uint64_t count, uint64_t bytes, Do prepare) {
  BenchOrder order;
  order.kind = kind;
  order.key = next_key_;
  order.count = count;
  order.bytes = bytes;
  next_key_ += count;
  RETURN_IF_ERROR(Ask(order).status());
  RETURN_IF_ERROR(prepare(order.key));
  return Fire().status();  // returns when all of it is armed
}

absl::Status BenchPair::Prepare(uint64_t count, uint64_t bytes) {
  return PrepareAs(BenchOrderKind::kPrepare, count, bytes,
                   [&](uint64_t key) { return sender_.Prepare(key, count, bytes); });
}

absl::Status BenchPair::PrepareBlocks(uint64_t count, uint64_t bytes) {
  return PrepareAs(BenchOrderKind::kPrepareBlocks, count, bytes,
                   [&](uint64_t key) { return sender_.PrepareBlocks(key, count, bytes); });
}

absl::StatusOr<absl::Duration> BenchPair::Fire() {
  BenchOrder order;
  order.kind = BenchOrderKind::kFire;
  return Measure(order, [&] { return sender_.Fire(); });
}

absl::Status BenchPair::PreparePing(uint64_t bytes) {
  BenchOrder order;
  order.kind = BenchOrderKind::kPreparePing;
  order.key = next_key_;
  order.bytes = bytes;
  next_key_ += 2;
  RETURN_IF_ERROR(Ask(order).status());
  RETURN_IF_ERROR(sender_.PreparePing(order.key, bytes));
  return Ping(1).status();  // returns when both are armed
}

absl::StatusOr<std::vector<absl::Duration>> BenchPair::Ping(uint64_t times) {
  BenchOrder order;
  order.kind = BenchOrderKind::kPong;
  order.count = times;
  RETURN_IF_ERROR(Order(order));
  ASSIGN_OR_RETURN(std::vector<absl::Duration> took, sender_.Ping(times));
  RETURN_IF_ERROR(Answer().status());
  for (absl::Duration& one : took) one /= 2;
  return took;
}

absl::StatusOr<absl::Duration> BenchPair::PingOnce() {
  ASSIGN_OR_RETURN(const std::vector<absl::Duration> took, Ping(1));
  return took[0];
}

absl::StatusOr<absl::Duration> BenchPair::FireMany(uint64_t times) {
  BenchOrder order;
  order.kind = BenchOrderKind::kFireMany;
  order.count = times;
  const int64_t start = MonotonicNanoseconds();
  RETURN_IF_ERROR(Order(order));
  RETURN_IF_ERROR(sender_.FireMany(times).status());
  ASSIGN_OR_RETURN(BenchAnswer answer, Answer());
  return absl::Nanoseconds(answer.nanoseconds - start);
}

absl::StatusOr<absl::Duration> BenchPair::Stream(uint64_t count, uint64_t bytes, uint64_t batch,
                                                 uint64_t window) {
  BenchOrder order;
  order.kind = BenchOrderKind::kStream;
  order.key = next_key_;
  order.count = count;
  order.bytes = bytes;
  order.batch = batch;
  order.window = window;
  next_key_ += count;
  const int64_t start = MonotonicNanoseconds();
  RETURN_IF_ERROR(Order(order));
  RETURN_IF_ERROR(sender_.Stream(order.key, count, bytes, batch, window).status());
  ASSIGN_OR_RETURN(BenchAnswer answer, Answer());
  return absl::Nanoseconds(answer.nanoseconds - start);
}

absl::Status BenchPair::Park(uint64_t count, uint64_t bytes) {
  BenchOrder order;
  order.kind = BenchOrderKind::kPark;
  order.key = next_key_;
  order.count = count;
  order.bytes = bytes;
  next_key_ += count;
  return Ask(order).status();
}

absl::Status BenchPair::Unpark() {
  BenchOrder order;
  order.kind = BenchOrderKind::kUnpark;
  return Ask(order).status();
}

absl::StatusOr<absl::Duration> BenchPair::KillReceiver() {
  RETURN_IF_ERROR(sender_.Fire());
  const int64_t start = MonotonicNanoseconds();
  kill(receiver_.pid(), SIGKILL);
  if (sender_.Await().ok()) {
    return Error(absl::StatusCode::kInternal, Reason::kInternal,
                 "a transfer went well whose receiver was killed before it");
  }
  return absl::Nanoseconds(MonotonicNanoseconds() - start);
}

absl::Status BenchPair::Compare() {
  BenchOrder order;
  order.kind = BenchOrderKind::kSum;
  if (!sender_.moved()) {
    return Error(absl::StatusCode::kDataLoss, Reason::kInternal,
                 "nothing was moved that could be compared");
  }
  ASSIGN_OR_RETURN(BenchAnswer answer, Ask(order));
  ASSIGN_OR_RETURN(const uint64_t sum, sender_.SumOfMoved());
  if (answer.value == sum) return absl::OkStatus();
  return Error(absl::StatusCode::kDataLoss, Reason::kInternal,
               "the bytes received are not those that were sent");
}

}  // namespace ferry::tools
