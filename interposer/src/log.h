/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages to stderr, for people: only what makes a call fail. A few per process; no malloc, no stdio. */
#ifndef TESSERA_LOG_H
#define TESSERA_LOG_H

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
