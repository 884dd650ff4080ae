/* rapl - the energy that this machine's processors have taken, from Linux' powercap.
 *
 * Each processor package has a folder intel-rapl:N under /sys/class/powercap, also on AMD's
 * processors, whose file energy_uj counts microjoules up to max_energy_range_uj and then begins at
 * 0 again.  A package's folders intel-rapl:N:M are parts of it, "psys" is the whole board with the
 * packages in it, and intel-rapl-mmio:N is the same counter once more: none of these is added.
 *
 * A counter that goes round twice between two calls is taken for one that went round once.  That
 * takes at least ten minutes at full power, and the callers ask each second.
 *
 * Life:    rapl_open -> rapl_read_mj ... ; there is nothing to close.
 * Threads: one at a time. */
#ifndef BASE_RAPL_H
#define BASE_RAPL_H

#include <stdint.h>

enum { RAPL_PATH = 192, RAPL_PACKAGES = 32, RAPL_WHY = 384 };

#define RAPL_ROOT "/sys/class/powercap"

struct rapl_package {
    char path[RAPL_PATH]; /* of its folder */
    int64_t range_uj;     /* its counter's largest value; 0: not known */
    int64_t last_uj;      /* as last read */
};

struct rapl {
    struct rapl_package package[RAPL_PACKAGES];
    int n;              /* 0: there is no energy to read, and `why` says why not */
    int64_t uj;         /* of all packages since rapl_open */
    char why[RAPL_WHY]; /* one line; "" if there is a counter */
};

/* Find the packages below `root`, and begin to count.  Either all packages can be read or none
 * counts, because a part of a machine's energy would be taken for all of it. */
void rapl_open(struct rapl *r, const char *root);

/* The millijoules since rapl_open, counted from 1.  0: not known, because there is no counter, or
 * one of them could not be read this time.  A later call then has the energy of that time, too. */
int64_t rapl_read_mj(struct rapl *r);

#endif
