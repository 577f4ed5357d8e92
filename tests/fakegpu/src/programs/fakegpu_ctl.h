/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_CTL_H
#define FAKEGPU_CTL_H

#include "state.h"

enum { STATUS_USAGE = 2 };

/* fakegpu_ctl.c */
int attach(const char *directory);       /* 0 or an errno value */
int failed(const char *what, int error); /* says so; the exit status */

/* fakegpu_faults.c: the commands that make a card or NVML misbehave; STATUS_USAGE for what is none of them.
 */
extern const char faults_usage[];
int faults_command(int argc, char **argv);
void fault_set(struct state *state, uint32_t delay_ms, uint32_t hang, uint32_t fail, uint32_t cards);

#endif
