/* SPDX-License-Identifier: Apache-2.0 */
/* Sends 1 MiB from device 0 to device 2 under the key "step-7". The other end is receive.c;
 * README.md says how both are built and run. */
#include <ferry/ferry.h>
#include <stdio.h>
#include <string.h>

static ferry_status* send_step(ferry_session* session) { /* NULL: all went well */
  ferry_arena* arena = NULL;
  ferry_status* bad = ferry_arena_create(session, /*device=*/0, 1 << 20, /*flags=*/0, &arena);
  if (bad != NULL) return bad;
  memset(ferry_arena_data(arena), 42, 1 << 20); /* on a host device: ordinary memory */

  ferry_range bytes = {arena, 0, 1 << 20};
  ferry_transfer send = {
      .remote_device = 2, .key = "step-7", .key_bytes = 6, .ranges = &bytes, .range_count = 1};
  ferry_batch* batch = NULL;
  bad = ferry_cross_host_send(session, /*device=*/0, &send, 1, NULL, &batch);
  if (bad == NULL) bad = ferry_batch_wait(batch, UINT64_MAX);
  ferry_batch_free(batch);
  ferry_arena_free(arena);
  return bad;
}

int main(void) {
  ferry_session* session = NULL;
  ferry_status* bad =
      ferry_session_open(NULL, &session); /* the node's daemon, or $FERRY_CLIENT_DIR's */
  if (bad == NULL) bad = send_step(session);
  if (bad == NULL) puts("sent 1 MiB");
  if (bad != NULL) fprintf(stderr, "%s: %s\n", ferry_status_reason(bad), ferry_status_message(bad));
  const int failed = bad != NULL;
  ferry_status_free(bad);
  ferry_session_close(session);
  return failed;
}
