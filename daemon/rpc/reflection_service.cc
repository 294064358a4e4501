// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <set>
#include <utility>

#include "daemon/rpc/stream_output.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace ferry {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

// The names in the protocol's two packages, whose messages are alike.
struct V1 {
  using Request = grpc::reflection::v1::ServerReflectionRequest;
  using Response = grpc::reflection::v1::ServerReflectionResponse;
  using Service = grpc::reflection::v1::ServerReflection;
};
struct V1Alpha {
  using Request = grpc::reflection::v1alpha::ServerReflectionRequest;
  using Response = grpc::reflection::v1alpha::ServerReflectionResponse;
  using Service = grpc::reflection::v1alpha::ServerReflection;
};

template <typename FileDescriptorResponse>
void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>& seen,
             FileDescriptorResponse* out) {
  if (!seen.insert(file).second) return;
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  out->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), seen, out);
}

template <typename Package>
typename Package::Response Answer(const typename Package::Request& request,
                                  const std::vector<std::string>& services) {
  typename Package::Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const DescriptorPool* pool = DescriptorPool::generated_pool();
  const FileDescriptor* file = nullptr;
  switch (request.message_request_case()) {
    case Package::Request::kListServices:
      for (const std::string& service : services) {
        response.mutable_list_services_response()->add_service()->set_name(service);
      }
      return response;
    case Package::Request::kFileByFilename:
      file = pool->FindFileByName(request.file_by_filename());
      break;
    case Package::Request::kFileContainingSymbol:
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

template <typename Package>
class Stream final
    : public grpc::ServerBidiReactor<typename Package::Request, typename Package::Response> {
 public:
  using Output = StreamOutput<typename Package::Response, grpc::Status>;
  explicit Stream(const std::vector<std::string>& services) : services_(services) {
    output_ = std::make_shared<Output>(
        [this](const typename Package::Response* message) { this->StartWrite(message); },
        [this](grpc::Status status) { this->Finish(status); });
    this->StartRead(&incoming_);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return output_->Finish(grpc::Status::OK);
    output_->Push(Answer<Package>(incoming_, services_));
    this->StartRead(&incoming_);
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
  typename Package::Request incoming_;
};

template <typename Package>
class ReflectionService final : public Package::Service::CallbackService {
 public:
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {
    services_.push_back(V1::Service::service_full_name());
    services_.push_back(V1Alpha::Service::service_full_name());
  }
  grpc::ServerBidiReactor<typename Package::Request, typename Package::Response>*
  ServerReflectionInfo(grpc::CallbackServerContext*) override {
    return new Stream<Package>(services_);
  }

 private:
  std::vector<std::string> services_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> MakeReflectionServices(
    const std::vector<std::string>& services) {
  std::vector<std::unique_ptr<grpc::Service>> both;
  both.push_back(std::make_unique<ReflectionService<V1>>(services));
  both.push_back(std::make_unique<ReflectionService<V1Alpha>>(services));
  return both;
}

}  // namespace ferry
