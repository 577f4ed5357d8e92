/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"

enum log_level log_level_of(const char *tessera, const char *hami) {
  static const char *const words[] = {"error", "warning", "info", "debug"};
  static const enum log_level numbers[] = {LOG_ERROR, LOG_WARNING, LOG_WARNING, LOG_INFO, LOG_DEBUG};
  for (int level = 0; tessera != NULL && level <= LOG_DEBUG; level++)
    if (strcmp(tessera, words[level]) == 0) return (enum log_level)level;
  if (hami != NULL && hami[0] >= '0' && hami[0] <= '4' && hami[1] == '\0') return numbers[hami[0] - '0'];
  return LOG_WARNING;
}

bool log_shows(enum log_level level) {
  static atomic_int known; /* 1 + what is set */
  int set = atomic_load_explicit(&known, memory_order_relaxed);
  if (set == 0) {
    set = 1 + (int)log_level_of(getenv("TESSERA_LOG_LEVEL"), getenv("LIBCUDA_LOG_LEVEL"));
    atomic_store_explicit(&known, set, memory_order_relaxed);
  }
  return (int)level < set;
}

/* Threads that come as a window ends may write one more, or count one less. */
bool log_allows(uint64_t now_ns, uint32_t *left_out) {
  static _Atomic uint64_t window_end_ns;
  static _Atomic uint32_t written, missing;
  uint64_t end = atomic_load_explicit(&window_end_ns, memory_order_relaxed);
  if (now_ns >= end && atomic_compare_exchange_strong(&window_end_ns, &end, now_ns + LOG_WINDOW_NS))
    atomic_store_explicit(&written, 0, memory_order_relaxed);
  if (atomic_fetch_add_explicit(&written, 1, memory_order_relaxed) >= LOG_MOST) {
    atomic_fetch_add_explicit(&missing, 1, memory_order_relaxed);
    return false;
  }
  *left_out = atomic_exchange_explicit(&missing, 0, memory_order_relaxed);
  return true;
}

void log_message(const char *format, ...) {
  char line[512] = "tessera: ";
  size_t start = strlen(line);
  uint32_t left_out = 0;
  va_list arguments;
  if (!log_allows(clock_now(), &left_out)) return;
  if (left_out != 0) {
    snprintf(line + start, sizeof line - start, "(%u messages left out) ", left_out);
    start = strlen(line);
  }
  va_start(arguments, format);
  vsnprintf(line + start, sizeof line - start - 1, format, arguments);
  va_end(arguments);
  size_t length = strlen(line);
  line[length] = '\n';
  if (write(STDERR_FILENO, line, length + 1) < 0) return; /* nobody listens */
}
