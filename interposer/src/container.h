/* SPDX-License-Identifier: Apache-2.0
 *
 * Which container of its Pod a process is in. */
#ifndef TESSERA_CONTAINER_H
#define TESSERA_CONTAINER_H

#include <stdbool.h>
#include <stdint.h>

#include "tessera_abi.h"

struct container {
  char name[TESSERA_CONTAINER_SIZE]; /* empty: not known */
  uint64_t tag; /* of the Pod and the container; never 0; one and the same wherever the name is not known */
};

/* false: not known; the struct is then filled for the nameless. */
bool container_find(struct container *container);

/* The same out of one line of /proc/self/mountinfo: 1: found, 0: not there, -1: it is another one than
 * `container` names already. */
int container_of_mount(const char *line, struct container *container);

#endif
