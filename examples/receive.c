/* SPDX-License-Identifier: Apache-2.0 */
/* Receives at device 2 what send.c sends from device 0. */
#include <ferry/ferry.h>
#include <stdio.h>

static ferry_status* receive_step(ferry_session* session) { /* NULL: all went well */
  ferry_arena* arena = NULL;
  ferry_status* bad = ferry_arena_create(session, /*device=*/2, 1 << 20, /*flags=*/0, &arena);
  if (bad != NULL) return bad;

  ferry_range bytes = {arena, 0, 1 << 20};
  ferry_transfer receive = {
      .remote_device = 0, .key = "step-7", .key_bytes = 6, .ranges = &bytes, .range_count = 1};
  ferry_batch* batch = NULL;
  bad = ferry_cross_host_receive(session, /*device=*/2, &receive, 1, NULL, &batch);
  if (bad == NULL) bad = ferry_batch_wait(batch, UINT64_MAX);
  if (bad == NULL) {
    const unsigned char* data = (const unsigned char*)ferry_arena_data(arena);
    printf("received 1 MiB, the last byte is %d\n", data[(1 << 20) - 1]);
  }
  ferry_batch_free(batch);
  ferry_arena_free(arena);
  return bad;
}

int main(void) {
  ferry_session* session = NULL;
  ferry_status* bad = ferry_session_open(NULL, &session);
  if (bad == NULL) bad = receive_step(session);
  if (bad != NULL) fprintf(stderr, "%s: %s\n", ferry_status_reason(bad), ferry_status_message(bad));
  const int failed = bad != NULL;
  ferry_status_free(bad);
  ferry_session_close(session);
  return failed;
}
