/* SPDX-License-Identifier: Apache-2.0
 *
 * Device attributes, the whole list of CUDA 12.8. What the inventory knows comes from there; the rest are the
 * values of an Ampere or later card, since a sparse list makes real libraries divide by zero or wait for
 * ever.
 */
#include "driver.h"

#define ATTRIBUTES 150u
#define ATTRIBUTES_BEFORE_13 144u

/* By attribute number; 0 where a card simply hasn't got it. Those of the inventory are put in below. */
static const int fixed[ATTRIBUTES] = {
    [1] = 1024,                                        /* threads per block */
    [2] = 1024,                                        /* block x, y, z */
    [3] = 1024,        [4] = 64,     [5] = 2147483647, /* grid x, y, z */
    [6] = 65535,       [7] = 65535,  [8] = 49152,      /* shared memory per block */
    [9] = 65536,                                       /* constant memory */
    [10] = 32,                                         /* warp */
    [11] = 2147483647,                                 /* pitch */
    [12] = 65536,                                      /* registers per block */
    [14] = 512,                                        /* texture alignment */
    [15] = 1,                                          /* copies while it computes */
    [19] = 1,                                          /* maps host memory */
    [21] = 131072,                                     /* textures: 1D, 2D, 3D, layered */
    [22] = 131072,     [23] = 65536, [24] = 16384,     [25] = 16384,     [26] = 16384,
    [27] = 32768,      [28] = 32768, [29] = 2048,      [30] = 512, /* surface alignment */
    [31] = 1,                                                      /* concurrent kernels */
    [40] = 2,                                                      /* copy engines */
    [41] = 1,                                                      /* unified addressing */
    [42] = 32768, /* textures: layered 1D, gathered 2D, alternate 3D, cube maps */
    [43] = 2048,       [44] = 1,     [45] = 32768,     [46] = 32768,     [47] = 8192,
    [48] = 8192,       [49] = 32768, [51] = 32,        [52] = 32768,     [53] = 32768,
    [54] = 2046,       [55] = 32768, /* surfaces */
    [56] = 131072,     [57] = 65536, [58] = 16384,     [59] = 16384,     [60] = 16384,
    [61] = 32768,      [62] = 2048,  [63] = 32768,     [64] = 32768,     [65] = 2048,
    [66] = 32768,      [67] = 32768, [68] = 2046,      [69] = 268435456, /* linear and mipmapped textures */
    [70] = 131072,     [71] = 65000, [72] = 2097120,   [73] = 32768,     [74] = 32768,
    [77] = 32768,      [78] = 1,               /* stream priorities */
    [79] = 1,                                  /* L1 caches global and local memory */
    [80] = 1,          [82] = 65536,           /* registers per multiprocessor */
    [83] = 1,                                  /* managed memory */
    [87] = 2,                                  /* single : double precision */
    [89] = 1,                                  /* concurrent managed access */
    [90] = 1,                                  /* compute preemption */
    [91] = 1,                                  /* host pointers of registered memory */
    [92] = 1,                                  /* stream memory operations, v1 and v2 */
    [93] = 1,          [94] = 1,     [95] = 1, /* cooperative launch */
    [96] = 1,          [99] = 1,               /* host registration */
    [102] = 1,                                 /* virtual memory management */
    [103] = 1,                                 /* ... with file descriptors */
    [107] = 1,                                 /* compression */
    [109] = 134213632,                         /* access policy window */
    [111] = 1024,                              /* shared memory that the driver keeps per block */
    [112] = 1,                                 /* sparse arrays */
    [113] = 1,                                 /* read-only registration */
    [114] = 1,                                 /* timeline semaphores */
    [115] = 1,                                 /* memory pools */
    [117] = 1,                                 /* flushing RDMA writes; their order */
    [118] = 100,       [119] = 1,              /* pools shared by file descriptor */
    [121] = 1,                                 /* deferred mapping */
    [122] = 1,                                 /* 64-bit stream memory operations, "nor" waits */
    [123] = 1,         [125] = 1,              /* events between processes */
    [126] = 1,                                 /* memory synchronisation domains */
    [129] = 1,                                 /* unified function pointers */
    [131] = -1,                                /* no NUMA node of its own */
    [145] = 1,                                 /* virtual memory management of the host's memory */
    [148] = 1,                                 /* reductions among stream memory operations */
    [149] = 1,                                 /* locality domains */
};

struct generation {
  int threads, blocks, shared_kib, opt_in_kib;
};

/* Per multiprocessor, by compute capability. */
static struct generation generation_of(const struct card_config *card) {
  if (card->compute_major >= 9) return (struct generation){2048, 32, 228, 227};
  if (card->compute_major == 8 && card->compute_minor == 9) return (struct generation){1536, 24, 100, 99};
  if (card->compute_major == 8 && card->compute_minor == 6) return (struct generation){1536, 16, 100, 99};
  if (card->compute_major == 8) return (struct generation){2048, 32, 164, 163};
  if (card->compute_major == 7 && card->compute_minor == 5) return (struct generation){1024, 16, 64, 64};
  return (struct generation){2048, 32, 96, 96};
}

static int attribute_of(const struct card_config *card, CUdevice_attribute attribute) {
  struct generation generation = generation_of(card);
  bool ampere = card->compute_major >= 8;
  switch (attribute) {
    case 13:
      return (int)card->clock_mhz * 1000;
    case 16:
      return (int)card->sms;
    case 32: /* error correction: data-centre cards */
    case 116:
      return card->bus_width_bits > 1024;
    case 33:
      return (int)card->pci_bus;
    case 34:
      return (int)card->pci_device;
    case 36:
      return (int)card->memory_clock_mhz * 1000;
    case 37:
      return (int)card->bus_width_bits;
    case 38:
      return (int)card->l2_bytes;
    case 39:
      return generation.threads;
    case 50:
      return (int)card->pci_domain;
    case 75:
      return (int)card->compute_major;
    case 76:
      return (int)card->compute_minor;
    case 81:
      return generation.shared_kib << 10;
    case 97:
      return generation.opt_in_kib << 10;
    case 106:
      return generation.blocks;
    case 108:
      return ampere ? (int)(card->l2_bytes / 4u * 3u) : 0;
    case 120: /* clusters */
    case 127: /* tensor maps */
      return card->compute_major >= 9;
    case 132: /* multicast: from NVSwitch of the third generation on */
      return card->compute_major >= 9 && card->nvlink_domain != 0;
    case 134:
      return card->numa_node;
    case 139:
      return (int)card->pci_device_id;
    case 140:
      return (int)card->pci_subsystem_id;
    default:
      return fixed[attribute];
  }
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  CUresult ready = driver_ready();
  if (ready != CUDA_SUCCESS) return ready;
  unsigned end = member_state()->driver.cuda_version < 13000 ? ATTRIBUTES_BEFORE_13 : ATTRIBUTES;
  if (value == NULL || attribute == 0 || attribute >= end) return CUDA_ERROR_INVALID_VALUE;
  const struct card_config *card = device_config(device);
  if (card == NULL) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute_of(card, attribute);
  return CUDA_SUCCESS;
}
