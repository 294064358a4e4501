// SPDX-License-Identifier: Apache-2.0
// ferry_token_thief CLIENT_DIR TOKEN_FILE: GetSession with a token that somebody else was given;
// prints what the daemon answers as "CODE/REASON". Exit status 0 if there was an answer that
// refused it.
#include <grpcpp/create_channel.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "base/status.h"
#include "ferry/v1/session.grpc.pb.h"
#include "tools/ferryctl/failure.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::stringstream token;
  token << std::ifstream(argv[2], std::ios::binary).rdbuf();
  auto stub = ferry::v1::SessionService::NewStub(grpc::CreateChannel(
      std::string("unix:") + argv[1] + "/client.sock", grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  context.AddMetadata("ferry-session-bin", token.str());
  ferry::v1::GetSessionResponse response;
  const absl::Status status = ferry::tools::FromGrpc(stub->GetSession(&context, {}, &response));
  std::cout << absl::StatusCodeToString(status.code()) << "/"
            << ferry::ReasonName(ferry::ReasonOf(status)) << "\n";
  return status.ok() ? 1 : 0;
}
