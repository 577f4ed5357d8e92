/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages to stderr, for people; a few a second at most. No malloc, no stdio's buffers.
 *
 *   error    what makes a call fail that must not            TESSERA_LOG_LEVEL=error   LIBCUDA_LOG_LEVEL=0
 *   warning  what is not as it should be; the default        warning                   1, 2
 *   info     the grants that were found, allocations refused info                      3
 *   debug    how the driver was found                        debug                     4
 *
 * The variables are read with the first message; the first of the two counts if it is one of these words. */
#ifndef TESSERA_LOG_H
#define TESSERA_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

#define LOG_WINDOW_NS 1000000000u
#define LOG_MOST 20u /* messages of one process in a window */

/* What isn't shown isn't worked out either. */
#define LOG(level, ...) (log_shows(level) ? log_message(__VA_ARGS__) : (void)0)
#define log_error(...) LOG(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) LOG(LOG_WARNING, __VA_ARGS__)
#define log_info(...) LOG(LOG_INFO, __VA_ARGS__)
#define log_debug(...) LOG(LOG_DEBUG, __VA_ARGS__)

bool log_shows(enum log_level level);
void log_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What the two variables say, each NULL where it is not set. */
enum log_level log_level_of(const char *tessera, const char *hami);

/* Whether one more message may be written at `now_ns`; then *left_out is how many before it were not. */
bool log_allows(uint64_t now_ns, uint32_t *left_out);

#endif
