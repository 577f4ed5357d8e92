/* SPDX-License-Identifier: Apache-2.0
 *
 * What nvidia-smi prints without options, and with -L.
 */
#include "smi.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static unsigned long long mebibytes(nvml_u64 bytes) { return bytes >> 20; }

void smi_print_list(const struct smi *smi) {
  for (unsigned index = 0; index < smi->card_count; index++) {
    const struct smi_card *card = &smi->cards[index];
    printf("GPU %u: %s (UUID: %s)\n", index, card->name, card->uuid);
    for (unsigned next = 0; next < card->instance_count; next++) {
      const char *profile = strstr(card->instances[next].name, " MIG ");
      printf("  %-15s Device %2u: (UUID: %s)\n", profile == NULL ? "MIG" : profile + 1, next,
             card->instances[next].uuid);
    }
  }
}

static void print_head(const struct smi *smi) {
  char now[64];
  time_t seconds = time(NULL);
  strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", localtime(&seconds));
  printf("%-72s\n", now);
  puts("+-----------------------------------------------------------------------------------------+");
  printf("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %2d.%-5d |\n", smi->driver_version,
         smi->driver_version, smi->cuda_version / 1000, smi->cuda_version % 1000 / 10);
  puts("|-----------------------------------------+------------------------+----------------------+");
  puts("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |");
  puts("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |");
  puts("|                                         |                        |               MIG M. |");
  puts("|=========================================+========================+======================|");
}

static void print_card(const struct smi_card *card) {
  char memory[64], power[64];
  snprintf(memory, sizeof memory, "%lluMiB / %6lluMiB", mebibytes(card->memory.used),
           mebibytes(card->memory.total));
  snprintf(power, sizeof power, "%uW / %4uW", card->milliwatts / 1000u, card->limit_milliwatts / 1000u);
  printf("| %3u  %-29.29s  On  |   %-16s Off |                  N/A |\n", card->index, card->name,
         card->pci.bus_id);
  printf("| N/A  %3uC    P%u   %21s | %22s |    %3u%%      Default |\n", card->celsius,
         card->performance_state, power, memory, card->utilization.gpu);
  printf("|                                         |                        |             %8s |\n",
         !card->has_mig      ? "N/A"
         : card->in_mig_mode ? "Enabled"
                             : "Disabled");
  puts("+-----------------------------------------+------------------------+----------------------+");
}

static void print_process(unsigned card, const struct smi_process *process) {
  size_t length = strlen(process->name);
  const char *name =
      length > 38 ? process->name + length - 38 : process->name; /* the end of a path says most */
  printf("|  %3u   N/A  N/A %12u      C   %-38s %7lluMiB |\n", card, process->pid, name,
         mebibytes(process->used_bytes));
}

static void print_processes(const struct smi *smi) {
  bool any = false;
  puts("\n+-----------------------------------------------------------------------------------------+");
  puts("| Processes:                                                                              |");
  puts("|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |");
  puts("|        ID   ID                                                               Usage      |");
  puts("|=========================================================================================|");
  for (unsigned index = 0; index < smi->card_count; index++)
    for (unsigned process = 0; process < smi->cards[index].process_count; process++) {
      print_process(index, &smi->cards[index].processes[process]);
      any = true;
    }
  if (!any)
    puts("|  No running processes found                                                             |");
  puts("+-----------------------------------------------------------------------------------------+");
}

void smi_print_table(const struct smi *smi) {
  print_head(smi);
  for (unsigned index = 0; index < smi->card_count; index++) print_card(&smi->cards[index]);
  print_processes(smi);
}
