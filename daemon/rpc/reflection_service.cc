// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <set>
#include <utility>

#include "daemon/rpc/stream_output.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"

namespace ferry {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;

void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>& seen,
             grpc::reflection::v1::FileDescriptorResponse* out) {
  if (!seen.insert(file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  out->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), seen, out);
}

ServerReflectionResponse Answer(const ServerReflectionRequest& request,
                                const std::vector<std::string>& services) {
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& service : services) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      return response;
    case ServerReflectionRequest::kFileByFilename:
      file = pool->FindFileByName(request.file_by_filename());
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      file = pool->FindFileContainingSymbol(request.file_containing_symbol());
      break;
    default:  // proto3 services have no extensions
      break;
  }
  if (file == nullptr) {
    response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
    response.mutable_error_response()->set_error_message("not found");
  } else {
    std::set<const FileDescriptor*> seen;
    AddFile(file, seen, response.mutable_file_descriptor_response());
  }
  return response;
}

class Stream final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  using Output = StreamOutput<ServerReflectionResponse, grpc::Status>;
  explicit Stream(const std::vector<std::string>& services) : services_(services) {
    output_ = std::make_shared<Output>(
        [this](const ServerReflectionResponse* message) { StartWrite(message); },
        [this](grpc::Status status) { Finish(status); });
    StartRead(&incoming_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return output_->Finish(grpc::Status::OK);
    output_->Push(Answer(incoming_, services_));
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override { output_->OnWriteDone(ok); }
  void OnCancel() override { output_->Finish(grpc::Status::CANCELLED); }
  void OnDone() override {
    output_->Detach();
    delete this;
  }

 private:
  const std::vector<std::string>& services_;
  std::shared_ptr<Output> output_;
  ServerReflectionRequest incoming_;
};

class ReflectionService final : public grpc::reflection::v1::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {
    services_.push_back(grpc::reflection::v1::ServerReflection::service_full_name());
  }
  grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>* ServerReflectionInfo(
      grpc::CallbackServerContext*) override {
    return new Stream(services_);
  }

 private:
  std::vector<std::string> services_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeReflectionService(std::vector<std::string> services) {
  return std::make_unique<ReflectionService>(std::move(services));
}

}  // namespace ferry
