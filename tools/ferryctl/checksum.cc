// SPDX-License-Identifier: Apache-2.0
#include "tools/ferryctl/checksum.h"

#include <openssl/evp.h>

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "base/check.h"
#include "base/status.h"
#include "tools/ferryctl/file_io.h"

namespace ferry::tools {

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  FERRY_CHECK(context_ != nullptr);
  FERRY_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() = default;

void Sha256::Add(absl::string_view bytes) {
  FERRY_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256::Finish() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  FERRY_CHECK(EVP_DigestFinal_ex(context_.get(), digest, &size) == 1);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), size));
}

std::string Sha256Of(absl::string_view bytes) {
  Sha256 sum;
  sum.Add(bytes);
  return sum.Finish();
}

absl::StatusOr<std::string> Sha256OfFile(const std::string& path) {
  ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::vector<char> chunk(std::size_t{4} << 20);
  Sha256 sum;
  for (uint64_t at = 0; at < file.bytes();) {
    const size_t size = std::min<uint64_t>(chunk.size(), file.bytes() - at);
    RETURN_IF_ERROR(file.Read(at, chunk.data(), size));
    sum.Add({chunk.data(), size});
    at += size;
  }
  return sum.Finish();
}

}  // namespace ferry::tools
