// SPDX-License-Identifier: Apache-2.0
// A daemon for the client's tests: the real sockets and messages (protoc's code) with the simplest
// behaviour behind them. Transfers of two sessions, or of one, meet by key and are copied. Keys
// tell it to misbehave:
//   "echo..."  over at once, well           "fail..."  over at once, TRANSFER_MISMATCH
//   "hang..."  the post is never answered   "bad..."   the batch is refused, this entry named
//   "far..."   both halves wait for each other until Meet()
// Every program is the same one, and jobs are over at once. Prepared batches do not meet. A firing
// of a batch whose first key is "echo..." is over when the doorbell rings; firings of all others
// never are. Any thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ferry/v1/job.grpc.pb.h"
#include "ferry/v1/job.pb.h"
#include "ferry/v1/session.grpc.pb.h"
#include "ferry/v1/session.pb.h"
#include "ferry/v1/transfer.grpc.pb.h"
#include "ferry/v1/transfer.pb.h"
#include "grpcpp/server.h"
#include "proto/ferry/v1/timeline_layout.h"

namespace ferry::testing {

// Ends the process, and says why, unless `ok`.
void Require(bool ok, const char* what);

class FakeDaemon final : public v1::TransferService::Service {
 public:
  struct Behaviour {
    uint32_t protocol = 2;    // the version of the protocol that the daemon speaks
    uint64_t devices = 2;     // 0, 1, ...
    uint64_t gpus = 0;        // GPUs of tests/fake_cuda, in their order; their ids follow
    int draining_hellos = 0;  // how many hellos are refused first
    std::string hangs = "hang";
  };
  explicit FakeDaemon(std::string dir) : FakeDaemon(std::move(dir), Behaviour()) {}
  FakeDaemon(std::string dir, Behaviour behaviour);
  ~FakeDaemon() override;  // Kill()

  // Closes every socket, as the death of a daemon does.
  void Kill();
  // Closes the attach sockets; gRPC stays.
  void CloseAttach();
  // Closes gRPC's listener and connections; attach sockets stay.
  void CloseRpc();

  void WaitForSessions(size_t count);  // sessions that are open
  void WaitForHellos(size_t count);    // hellos that came, refused or not
  size_t sessions();
  size_t hellos();
  v1::Hello last_hello();
  size_t arenas();
  v1::RegisterArena last_arena();     // the last arena that a client asked for
  void WaitForHanging(size_t count);  // calls that will not be answered
  size_t hanging();
  void WaitForEventWaiter();      // a client's thread that sleeps until any counter advances
  size_t prepared_waiters();      // threads that sleep until a firing is over
  void Meet();                    // halves that are far from each other meet
  void set_forget(bool forget);   // whether to forget statuses
  void set_memfd_short(bool on);  // whether to welcome with a memfd of one page
  size_t unary_posts() const { return unary_posts_; }
  size_t socket_posts() const { return socket_posts_; }
  // The refusal of posts with a "bad..." key: its text and its fields.
  void set_refusal(std::string message,
                   std::vector<std::pair<std::string, std::string>> violations);
  // Sends a packet to every session, as it is.
  void Say(const std::string& packet);

  grpc::Status CrossHostSend(grpc::ServerContext*, const v1::CrossHostSendRequest*,
                             v1::CrossHostSendResponse*) override;
  grpc::Status CrossHostReceive(grpc::ServerContext*, const v1::CrossHostReceiveRequest*,
                                v1::CrossHostReceiveResponse*) override;
  grpc::Status CancelTransfers(grpc::ServerContext*, const v1::CancelTransfersRequest*,
                               v1::CancelTransfersResponse*) override;
  grpc::Status GetTransfers(grpc::ServerContext*, const v1::GetTransfersRequest*,
                            v1::GetTransfersResponse*) override;
  grpc::Status WatchTransfers(grpc::ServerContext*, const v1::WatchTransfersRequest*,
                              grpc::ServerWriter<v1::WatchTransfersResponse>*) override;

 private:
  struct Arena {
    char* data;
    uint64_t bytes;
  };
  struct Transfer {
    uint64_t id;
    bool send;
    std::string match;  // what must be equal in the other half
    bool far = false;   // meets its other half after Meet() only
    v1::Buffer buffer;
    uint32_t timeline;
    uint64_t value;
    bool over = false;
    google::rpc::Status status;
  };
  struct Session {
    uint64_t id;
    int fd;
    int doorbell;
    std::string token;
    ferry_timeline_pages* pages;
    std::map<uint64_t, Arena> arenas;
    uint64_t registered = 0;  // arenas ever registered; ids are not used again
    uint64_t before = 0;      // transfer ids of the session's former lives
    std::vector<std::unique_ptr<Transfer>> transfers;  // by id - before - 1
    std::map<uint64_t, Transfer*> waiting;             // not over, by id
    uint64_t posted[FERRY_TIMELINE_COUNTERS] = {};
    std::set<uint64_t> open_values[FERRY_TIMELINE_COUNTERS];
    std::vector<v1::Transfer> endings;
    uint64_t prepared_from = 0;
    std::vector<bool> echoes;  // whether each prepared batch, by number, is an "echo..."
    bool open = true;
  };
  struct Posted {
    google::rpc::Status error;
    uint64_t first_id = 0;
    uint64_t first_value = 0;
    uint32_t prepared = 0;
    bool hang = false;
  };

  void Accept();
  void Serve(int fd);
  // Answers a hello. Null if it is refused. With mutex_ held.
  Session* Welcome(const v1::AttachRequest& request, int fd, int passed,
                   v1::AttachResponse* response, std::vector<int>* sent);
  void Ring(Session* session);
  v1::AttachResponse Answer(Session* session, const v1::AttachRequest& request,
                            const std::vector<int>& passed, std::vector<int>* sent);
  void Register(Session* session, const v1::RegisterArena& wanted, const std::vector<int>& passed,
                std::vector<int>* sent, v1::AttachResponse* response);
  // Fills in `response`, which contains `posted`; clears it if there must be no answer.
  template <typename Request, typename Response>
  void AnswerPost(Session* session, const Request& request, bool send, Response* posted,
                  v1::AttachResponse* response);
  void Run(Session* session, const v1::RunRequest& request, v1::RunResponse* response);
  Session* Find(grpc::ServerContext* context);  // with mutex_ held
  template <typename Request>
  Posted Post(Session* session, const Request& request, bool send);
  void Progress();  // starts transfers that can start
  static uint32_t Prepare(Session* session, bool echoes);
  static void Fire(Session* session);
  static google::rpc::Status Copy(const Session& from, const Transfer& send, const Session& to,
                                  const Transfer& receive);
  bool Defined(const Session& session, const Transfer& transfer) const;
  bool Matched(const Transfer& transfer) const;  // whether its other half is there
  void Finish(Session* session, Transfer* transfer, google::rpc::Status status);
  grpc::Status Hang(grpc::ServerContext* context);

  // Lists, beside its own device, one device of another node that it has not heard of. A member
  // "hang..." is never answered.
  class Cluster final : public v1::SessionService::Service {
   public:
    explicit Cluster(FakeDaemon& daemon) : daemon_(daemon) {}

   private:
    grpc::Status JoinDomain(grpc::ServerContext* context, const v1::JoinDomainRequest* request,
                            v1::JoinDomainResponse*) override {
      return request->name().starts_with("hang") ? daemon_.Hang(context) : grpc::Status::OK;
    }
    grpc::Status ListClusterDevices(grpc::ServerContext*, const v1::ListClusterDevicesRequest*,
                                    v1::ListClusterDevicesResponse* response) override {
      auto* own = response->add_devices();
      own->mutable_device()->set_global_device_id(0);
      own->mutable_device()->set_kind(v1::Device::KIND_HOST);
      own->mutable_device()->set_name("host0");
      own->set_node("node-a");
      own->set_local(true);
      auto* other = response->add_devices();
      other->mutable_device()->set_global_device_id(9);
      other->set_node("node-b");
      return grpc::Status::OK;
    }

    FakeDaemon& daemon_;
  };
  // Compiles every program to the same one, without buffers.
  class Compiler final : public v1::ProgramService::Service {
    grpc::Status Compile(grpc::ServerContext*, const v1::CompileRequest*,
                         v1::CompileResponse* response) override {
      response->mutable_program()->set_fingerprint(std::string(32, 'p'));
      response->mutable_program()->set_plan("nothing");
      return grpc::Status::OK;
    }
  };

  const std::string dir_;
  Cluster cluster_{*this};
  Compiler compiler_;
  int listener_ = -1;
  std::unique_ptr<grpc::Server> server_;
  std::atomic<size_t> unary_posts_{0};
  std::atomic<size_t> socket_posts_{0};

  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Session>> all_;
  std::vector<std::thread> threads_;
  v1::Hello last_hello_;
  v1::RegisterArena last_arena_;
  size_t hanging_ = 0;
  bool met_ = false;
  bool forget_ = false;
  bool memfd_short_ = false;
  std::string refusal_ = "bad batch";
  std::vector<std::pair<std::string, std::string>> refused_;  // empty: the bad entries are named
  Behaviour behaviour_;
  size_t hellos_ = 0;
  bool killed_ = false;
};

google::rpc::Status MakeStatus(int code, const std::string& reason, const std::string& text);
grpc::Status ToGrpc(const google::rpc::Status& status);

}  // namespace ferry::testing
