/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside nvidia-smi: what it reads through NVML, once, before it prints anything.
 */
#ifndef FAKEGPU_SMI_H
#define FAKEGPU_SMI_H

#include "nvml_types.h"

#include <stdbool.h>

#define SMI_CARDS 16u
#define SMI_PROCESSES 256u
#define SMI_INSTANCES 16u

struct smi_process {
  unsigned pid;
  nvml_u64 used_bytes;
  char name[256];
};

struct smi_instance {
  char name[128], uuid[96];
};

struct smi_card {
  unsigned index;
  char name[96], uuid[96], serial[64];
  nvmlPciInfo_t pci;
  nvmlMemory_t memory;
  nvmlUtilization_t utilization;
  int compute_major, compute_minor;
  unsigned celsius, milliwatts, limit_milliwatts, performance_state;
  bool has_mig, in_mig_mode;
  unsigned instance_count;
  struct smi_instance instances[SMI_INSTANCES];
  unsigned process_count;
  struct smi_process processes[SMI_PROCESSES];
};

struct smi {
  char driver_version[80], nvml_version[80];
  int cuda_version;
  unsigned card_count;
  struct smi_card cards[SMI_CARDS];
};

/* Loads libnvidia-ml.so.1 and reads everything; on failure prints nvidia-smi's message and ends the program
 * with nvidia-smi's status (12: no library, 9: no driver, 6: no devices). */
void smi_read(struct smi *smi);

void smi_print_table(const struct smi *smi);
void smi_print_list(const struct smi *smi);

/* --query-gpu=FIELDS, --query-compute-apps=FIELDS with --format=csv[,noheader][,nounits]; the exit status. */
int smi_query_cards(const struct smi *smi, const char *fields, const char *format);
int smi_query_processes(const struct smi *smi, const char *fields, const char *format);

#endif
