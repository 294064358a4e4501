/* SPDX-License-Identifier: Apache-2.0 */
/* How calls of libferry end: NULL is success, else a status, which the caller frees. Any thread may
 * read a status; every function here takes NULL. A status that was freed reads as INVALID_ARGUMENT,
 * FIELD_INVALID, with `status` as the field of its one violation, and freeing it again does
 * nothing; ferry.h says for how long. */
#ifndef FERRY_FERRY_STATUS_H_
#define FERRY_FERRY_STATUS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FERRY_API __attribute__((visibility("default")))

/* Codes are gRPC's: 0 OK, 1 CANCELLED, 3 INVALID_ARGUMENT, 4 DEADLINE_EXCEEDED, 5 NOT_FOUND,
 * 6 ALREADY_EXISTS, 7 PERMISSION_DENIED, 8 RESOURCE_EXHAUSTED, 9 FAILED_PRECONDITION, 10 ABORTED,
 * 11 OUT_OF_RANGE, 12 UNIMPLEMENTED, 13 INTERNAL, 14 UNAVAILABLE, 16 UNAUTHENTICATED. */
typedef struct ferry_status ferry_status;

FERRY_API int ferry_status_code(const ferry_status* status); /* 0 for NULL */
FERRY_API const char* ferry_status_code_name(const ferry_status* status);
/* The reason of the closed list (docs/errors.md); "" if there is none. Lives as long as the
 * status. */
FERRY_API const char* ferry_status_reason(const ferry_status* status);
FERRY_API const char* ferry_status_message(const ferry_status* status);
/* What is wrong with the arguments: how many violations there are; for each the argument or its
 * field ("sends[3].ranges[0]", "options.priority"), and why. A refused batch has one for each bad
 * entry. */
FERRY_API size_t ferry_status_violations(const ferry_status* status);
FERRY_API const char* ferry_status_violation_field(const ferry_status* status, size_t index);
FERRY_API const char* ferry_status_violation_text(const ferry_status* status, size_t index);
/* For failures that may pass by waiting (RESOURCE_EXHAUSTED, UNAVAILABLE): the daemon's estimate of
 * when the same call is worth another try. 0: it gives none, and waiting alone does not help. */
FERRY_API uint64_t ferry_status_retry_after_ns(const ferry_status* status);
FERRY_API void ferry_status_free(ferry_status* status); /* NULL is fine */

/* The library's version, "0.2.0". */
FERRY_API const char* ferry_version(void);

#ifdef __cplusplus
}
#endif

#endif /* FERRY_FERRY_STATUS_H_ */
