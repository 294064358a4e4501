// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/field_error.h"
#include "base/status.h"
#include "daemon/rpc/client_services.h"
#include "daemon/rpc/convert.h"
#include "daemon/rpc/program_codec.h"
#include "daemon/rpc/status_proto.h"
#include "ferry/v1/job.grpc.pb.h"

namespace ferry {
namespace {

absl::StatusOr<ProgramSource> SourceOf(const v1::ProgramSource& source) {
  if (source.has_text()) return ProgramSource(source.text());
  if (!source.has_program()) {
    return FieldError("source", "compile a program: source has neither a program nor a text");
  }
  ASSIGN_OR_RETURN(compute::Program program, FromProto(source.program()));
  return ProgramSource(std::move(program));
}

void Fill(const CompileResult& result, v1::CompiledProgram* out) {
  const CompiledProgram& program = *result.program;
  out->set_fingerprint(program.fingerprint);
  for (const compute::Buffer& buffer : program.buffers) ToProto(buffer, out->add_buffers());
  out->set_scratch_bytes(program.scratch_bytes());
  out->mutable_cost()->set_flops(program.cost.flops);
  out->mutable_cost()->set_transcendentals(program.cost.transcendentals);
  out->mutable_cost()->set_bytes_read(program.cost.bytes_read);
  out->mutable_cost()->set_bytes_written(program.cost.bytes_written);
  out->set_plan(result.plan);
}

class ProgramServiceImpl final : public v1::ProgramService::CallbackService {
 public:
  explicit ProgramServiceImpl(RpcCore& core) : core_(core) {}

  grpc::ServerUnaryReactor* Compile(grpc::CallbackServerContext* context,
                                    const v1::CompileRequest* request,
                                    v1::CompileResponse* response) override {
    return Make(context, *request, true, response->mutable_program());
  }
  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext* context,
                                 const v1::PlanRequest* request,
                                 v1::PlanResponse* response) override {
    return Make(context, *request, false, response->mutable_program());
  }

  grpc::ServerUnaryReactor* Run(grpc::CallbackServerContext* context, const v1::RunRequest* request,
                                v1::RunResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    core_.control.PostOrRun([this, reactor, response,
                             caller = RpcCaller::Of(*context, core_.connections),
                             batch = Convert(*request)]() mutable {
      absl::StatusOr<Session*> session = caller.Authenticate(core_);
      if (!session.ok()) return reactor->Finish(ToGrpc(session.status()));
      PostReply reply = core_.sessions.Post(**session, std::move(batch));
      response->set_first_transfer_id(reply.first_transfer_id);
      response->set_first_over_value(reply.first_over_value);
      response->set_prepared_batch(reply.prepared_batch);
      core_.later([reactor, reply = std::move(reply)] {
        reactor->Finish(ToGrpc(reply.status, reply.violations));
      });
    });
    return reactor;
  }

 private:
  // Reads the request here, on gRPC's thread. The response lives until the reactor is finished.
  template <typename Request>
  grpc::ServerUnaryReactor* Make(grpc::CallbackServerContext* context, const Request& request,
                                 bool keep, v1::CompiledProgram* out) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    absl::StatusOr<ProgramSource> source = SourceOf(request.source());
    if (!source.ok()) {
      reactor->Finish(ToGrpc(source.status()));
      return reactor;
    }
    core_.control.PostOrRun([this, reactor, keep, out, device = GlobalDeviceId(request.device_id()),
                             caller = RpcCaller::Of(*context, core_.connections),
                             source = *std::move(source)]() mutable {
      absl::StatusOr<Session*> session = caller.Authenticate(core_);
      if (!session.ok()) return reactor->Finish(ToGrpc(session.status()));
      core_.jobs.Compile(device, std::move(source), keep, [reactor, out](CompileResult result) {
        if (result.status.ok()) Fill(result, out);
        reactor->Finish(ToGrpc(result.status, result.violations));
      });
    });
    return reactor;
  }
  RpcCore& core_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeProgramService(RpcCore& core) {
  return std::make_unique<ProgramServiceImpl>(core);
}

}  // namespace ferry
