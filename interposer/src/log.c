/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST 20 /* messages of one process */

void log_error(const char *format, ...) {
  static atomic_int written;
  char line[512] = "tessera: ";
  size_t start = strlen(line);
  va_list arguments;
  if (atomic_load_explicit(&written, memory_order_relaxed) >= MOST) return;
  atomic_fetch_add_explicit(&written, 1, memory_order_relaxed);
  va_start(arguments, format);
  vsnprintf(line + start, sizeof line - start - 1, format, arguments);
  va_end(arguments);
  size_t length = strlen(line);
  line[length] = '\n';
  if (write(STDERR_FILENO, line, length + 1) < 0) return; /* nobody listens */
}
