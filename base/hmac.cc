// SPDX-License-Identifier: Apache-2.0
#include "base/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include "base/check.h"

namespace ferry {

std::string HmacSha256(absl::string_view key, absl::string_view message) {
  std::string digest(kHmacBytes, '\0');
  unsigned int bytes = 0;
  FERRY_CHECK(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                   reinterpret_cast<const unsigned char*>(message.data()), message.size(),
                   reinterpret_cast<unsigned char*>(digest.data()), &bytes) != nullptr);
  FERRY_CHECK(bytes == kHmacBytes);
  return digest;
}

bool SameBytes(absl::string_view a, absl::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace ferry
