/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKEGPU_ARGUMENTS_H
#define FAKEGPU_ARGUMENTS_H

#include <stdbool.h>

enum option_type { OPTION_TEXT, OPTION_NUMBER, OPTION_SIZE, OPTION_REAL, OPTION_SWITCH };

/* One option `--name VALUE`. target: const char **, long *, unsigned long long * (bytes), double *, bool *.
 */
struct option_rule {
  const char *name;
  enum option_type type;
  void *target;
  const char *help;
};

/* Fills the targets from the command line; on a wrong one, or --help, prints the usage and ends the program
 * (2, 0). */
void read_arguments(int argc, char **argv, const struct option_rule *rules, const char *purpose);

#endif
