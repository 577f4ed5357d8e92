/* SPDX-License-Identifier: Apache-2.0
 *
 * What virtual_time.py calls to make a world of virtual time and to let it go on; see virtual_time.c.
 */
#ifndef FAKEGPU_VIRTUAL_TIME_H
#define FAKEGPU_VIRTUAL_TIME_H

#include <stdbool.h>
#include <stdint.h>

int virtual_time_create(const char *path); /* 0 or errno; opens it as well */
uint64_t virtual_time_now(void);
int virtual_time_members(void); /* that are alive */

/* Lets the world go on for so many nanoseconds, until it stands still again; ETIMEDOUT: it didn't within
 * `patience_ns` of real time. */
int virtual_time_advance(uint64_t span, uint64_t patience_ns);

#endif
