/* SPDX-License-Identifier: Apache-2.0
 *
 * The usage file of a region (region_open is in region.h): its descriptor, and room for what is written. */
#ifndef TESSERA_REGION_FILE_H
#define TESSERA_REGION_FILE_H

#include "region.h"

/* The descriptor, if it still is ours. The program may have closed it, and with it all our record locks, or
   have something else under its number; then it is opened again, and the slot locked again (should it be
   somebody else's by now, start_ns tells, and the process registers anew). */
int region_file(struct region *region);

/* The same for a forked child, whose copy has no locks. */
void region_close(struct region *region);

/* Before the slot is written to: 0, or an errno. */
int region_slot_room(int file, uint32_t slot);

#endif
