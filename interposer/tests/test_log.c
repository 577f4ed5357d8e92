/* SPDX-License-Identifier: Apache-2.0
 *
 * Which variable says what, and how many messages a window has. */
#include "log.h"

#include <stddef.h>

#include "check.h"

static void levels(void) {
  static const struct {
    const char *tessera, *hami;
    enum log_level expected;
  } cases[] = {
      {NULL, NULL, LOG_WARNING},   {"error", NULL, LOG_ERROR}, {"warning", NULL, LOG_WARNING},
      {"info", NULL, LOG_INFO},    {"debug", NULL, LOG_DEBUG}, {NULL, "0", LOG_ERROR},
      {NULL, "1", LOG_WARNING},    {NULL, "2", LOG_WARNING},   {NULL, "3", LOG_INFO},
      {NULL, "4", LOG_DEBUG},      {"error", "4", LOG_ERROR},  {"debug", "0", LOG_DEBUG},
      {"", "3", LOG_INFO},         {"loud", "3", LOG_INFO},    {"DEBUG", NULL, LOG_WARNING},
      {NULL, "", LOG_WARNING},     {NULL, "5", LOG_WARNING},   {NULL, "-1", LOG_WARNING},
      {NULL, "40", LOG_WARNING},   {"errors", "x", LOG_WARNING},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    CHECK_EQUAL(log_level_of(cases[i].tessera, cases[i].hami), cases[i].expected);
}

static void rate(void) {
  uint64_t now = 5000000000u;
  uint32_t left_out = 77;
  for (uint32_t i = 0; i < LOG_MOST; i++) {
    CHECK(log_allows(now + i, &left_out));
    CHECK_EQUAL(left_out, 0);
  }
  for (int i = 0; i < 7; i++) CHECK(!log_allows(now + LOG_WINDOW_NS - 1, &left_out));
  CHECK(log_allows(now + LOG_WINDOW_NS, &left_out));
  CHECK_EQUAL(left_out, 7);
  CHECK(log_allows(now + LOG_WINDOW_NS, &left_out));
  CHECK_EQUAL(left_out, 0);
}

int main(void) {
  levels();
  rate();
  return 0;
}
